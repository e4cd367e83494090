//! Quotas: what sessions may take, and who keeps count.
//!
//! A session has one [`QuotaAccount`], which every change of it goes through after it was made and
//! before it is kept: what it takes more is charged at once, what it takes less only once that is
//! committed, so that nobody uses room that comes back. The same is counted in each [`Group`] of
//! sessions that it is in, while only the groups that the change came through are asked.
//!
//! Counting begins when somebody sets a limit ([`Overlay::join`], [`Overlay::set_limits`], or one
//! that the session has); without any it costs nothing.

mod group;
mod ledger;

use std::sync::Arc;

use crate::delta::{Limits, Usage, UsageDelta, WriteTxn};
use crate::vfs::{FsError, FsStat};
use crate::worker::{Cost, OpResult};

use super::Overlay;
use super::error::{from_store, from_work};

pub use group::Group;
pub(super) use ledger::{Membership, QuotaAccount, QuotaReservation};

/// What a change of the limits weighs in the writer's queue, in bytes.
const LIMITS_BYTES: usize = 512;

impl Overlay {
    /// Lets the session share the group's limits: all that it takes is counted there, and changes
    /// through this overlay and its copies are refused where they would go past them. It leaves
    /// the group with the last of these.
    ///
    /// # Errors
    /// The session cannot be read, or takes no changes.
    pub async fn join(&mut self, group: &Arc<Group>) -> Result<(), FsError> {
        self.count_usage().await?;
        let membership = Arc::new(self.core.ledger.join(group).ok_or(FsError::Fault)?);
        self.asked = self.asked.iter().cloned().chain([membership]).collect();
        Ok(())
    }

    /// What the session takes, and its own limits.
    ///
    /// # Errors
    /// The session cannot be read, or takes no changes.
    pub async fn quota(&self) -> Result<(Usage, Limits), FsError> {
        self.count_usage().await?;
        Ok(self.core.ledger.quota())
    }

    /// The same where it is counted already; this costs nothing and changes nothing.
    pub fn counted(&self) -> (Option<Usage>, Limits) {
        self.core.ledger.counted()
    }

    /// Gives the session limits of its own, `change`d from those that it has; they are on the
    /// disk before this returns. What it takes and those limits then.
    ///
    /// # Errors
    /// The session takes no changes: the limits are as they were.
    pub async fn set_limits(
        &self,
        change: impl Fn(Limits) -> Limits + Send + 'static,
    ) -> Result<(Usage, Limits), FsError> {
        if self.core.is_read_only() || self.scope.read_only {
            return Err(FsError::ReadOnly);
        }
        self.count_usage().await?;
        let ledger = Arc::clone(&self.core.ledger);
        let job = move |txn: &mut dyn WriteTxn| {
            let limits = txn.limits().map(&change);
            let value = limits.and_then(|limits| txn.put_limits(limits).map(|()| limits));
            let limits = value.as_ref().ok().copied();
            let ledger = Arc::clone(&ledger);
            let after_commit = move || limits.into_iter().for_each(|limits| ledger.set(limits));
            OpResult { commit: value.is_ok(), value, after_commit: Some(Box::new(after_commit)) }
        };
        let done = self.worker.write(Cost::Inline, LIMITS_BYTES, true, job).await;
        done.map_err(|error| from_work(&error))?.value.map_err(|error| from_store(&error))?;
        Ok(self.core.ledger.quota())
    }

    /// Sees to it that what the session takes is counted.
    async fn count_usage(&self) -> Result<(), FsError> {
        if self.core.ledger.is_counted() {
            return Ok(());
        }
        let ledger = Arc::clone(&self.core.ledger);
        let counted = self.worker.count_usage(move |sum: UsageDelta| ledger.begin(sum)).await;
        counted.map_err(|error| from_work(&error))
    }

    /// The same where the session has a limit of bytes or files.
    pub(super) async fn count_if_limited(&self) -> Result<(), FsError> {
        if self.core.ledger.wants_count() { self.count_usage().await } else { Ok(()) }
    }

    /// Figures of the disk as the limits let clients see them.
    pub(super) async fn limited(&self, disk: FsStat) -> FsStat {
        match self.count_if_limited().await {
            Ok(()) => self.core.ledger.shown(disk, &self.asked),
            // Nothing can be written anyway.
            Err(_) => disk,
        }
    }
}
