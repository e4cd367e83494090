//! Sessions in a database: nothing counts that was read while another server may have had it.

use std::time::Duration;

use crate::delta::postgres::LeaseTime;
use crate::vfs::FsError;

use super::Overlay;

impl Overlay {
    /// Fails if another server may have the session. After a read: a lease that is valid now was
    /// valid all the time.
    pub(super) fn check_lease(&self) -> Result<(), FsError> {
        match &self.core.lease {
            Some(lease) if !lease.is_valid(LeaseTime::now()) => Err(FsError::TryLater),
            _ => Ok(()),
        }
    }

    /// Whether no other server can have the session.
    pub fn has_lease(&self) -> bool {
        self.check_lease().is_ok()
    }

    /// Whether the session is lost for good: it has to be opened again.
    pub fn is_lost(&self) -> bool {
        self.core.lease.as_ref().is_some_and(|lease| lease.is_lost())
    }

    /// Waits until no other server can have the session, for at most `limit`; not if it is lost.
    ///
    /// # Errors
    /// [`FsError::TryLater`]: another server may still have it.
    pub async fn await_lease(&self, limit: Duration) -> Result<(), FsError> {
        if let Some(lease) = &self.core.lease {
            lease.await_valid(limit).await;
        }
        self.check_lease()
    }
}
