//! Quotas of sessions and of groups of sessions.
//!
//! A session has one [`QuotaAccount`]. Each change is charged after it was made and before it is
//! committed. Growth is charged at once; released space is credited only after the commit, so that
//! it cannot be used before. Each [`Group`] of the session counts the same. Only the limits of
//! groups through which the change came are enforced.
//!
//! Counting starts with the first limit: [`Overlay::join`], [`Overlay::set_limits`], or a limit
//! stored in the session. Without limits it costs nothing.

mod account;
mod group;

use std::sync::Arc;

use crate::delta::{Limits, Usage, UsageDelta, WriteTxn};
use crate::vfs::{FsError, FsStat};
use crate::worker::{Cost, OpResult};

use super::Overlay;
use super::error::{from_store, from_work};

pub(super) use account::{Membership, QuotaAccount, QuotaReservation};
pub use group::Group;

/// Size of a change of limits in the writer's queue, in bytes.
const LIMITS_BYTES: usize = 512;

impl Overlay {
    /// Adds the session to a group: its usage counts there, and changes through this overlay and
    /// its clones fail where they exceed the group's limits. The session leaves the group when the
    /// last of these overlays is dropped.
    ///
    /// # Errors
    /// The session cannot be read or accepts no changes.
    pub async fn join(&mut self, group: &Arc<Group>) -> Result<(), FsError> {
        self.count_usage().await?;
        let membership = Arc::new(self.core.quota.join(group).ok_or(FsError::Fault)?);
        self.memberships = self.memberships.iter().cloned().chain([membership]).collect();
        Ok(())
    }

    /// Usage of the session, and its own limits.
    ///
    /// # Errors
    /// The session cannot be read or accepts no changes.
    #[cfg(feature = "internals")]
    pub async fn quota(&self) -> Result<(Usage, Limits), FsError> {
        self.count_usage().await?;
        Ok(self.core.quota.quota())
    }

    /// As [`Self::quota`], but only if the usage is already counted.
    pub fn counted(&self) -> (Option<Usage>, Limits) {
        self.core.quota.counted()
    }

    /// Applies `change` to the session's own limits and syncs them. Returns usage and new limits.
    ///
    /// # Errors
    /// The session accepts no changes: the limits are unchanged.
    pub async fn set_limits(
        &self,
        change: impl Fn(Limits) -> Limits + Send + 'static,
    ) -> Result<(Usage, Limits), FsError> {
        if self.core.is_read_only() || self.scope.read_only {
            return Err(FsError::ReadOnly);
        }
        self.count_usage().await?;
        let account = Arc::clone(&self.core.quota);
        let job = move |txn: &mut dyn WriteTxn| {
            let limits = txn.limits().map(&change);
            let value = limits.and_then(|limits| txn.put_limits(limits).map(|()| limits));
            let limits = value.as_ref().ok().copied();
            let account = Arc::clone(&account);
            let after_commit = move || limits.into_iter().for_each(|limits| account.set(limits));
            OpResult { commit: value.is_ok(), value, after_commit: Some(Box::new(after_commit)) }
        };
        let done = self.worker.write(Cost::Inline, LIMITS_BYTES, true, job).await;
        done.map_err(|error| from_work(&error))?.value.map_err(|error| from_store(&error))?;
        Ok(self.core.quota.quota())
    }

    /// Counts the session's usage, unless that was done.
    async fn count_usage(&self) -> Result<(), FsError> {
        if self.core.quota.is_counted() {
            return Ok(());
        }
        let account = Arc::clone(&self.core.quota);
        let counted = self.worker.count_usage(move |sum: UsageDelta| account.begin(sum)).await;
        counted.map_err(|error| from_work(&error))
    }

    /// As [`Self::count_usage`], if the session has a limit of bytes or files.
    pub(super) async fn count_if_limited(&self) -> Result<(), FsError> {
        if self.core.quota.wants_count() { self.count_usage().await } else { Ok(()) }
    }

    /// Reduces FSSTAT's figures of the disk to what the limits leave.
    pub(super) async fn limited(&self, disk: FsStat) -> FsStat {
        match self.count_if_limited().await {
            Ok(()) => self.core.quota.shown(disk, &self.memberships),
            // The session is not writable in this case.
            Err(_) => disk,
        }
    }
}
