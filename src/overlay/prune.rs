//! Takes the oldest rows out of the audit log while the session may be served.

use crate::delta::WriteTxn;
use crate::vfs::FsError;
use crate::worker::{Cost, OpResult};

use super::Overlay;
use super::error::{from_store, from_work};

/// Rows that one transaction deletes, at most: clients' changes wait for it.
const PRUNE_ROWS: u32 = 1000;

/// What the operation weighs in the writer's queue, in bytes.
const PRUNE_BYTES: usize = 512;

impl Overlay {
    /// Deletes rows of the audit log up to the row `upto`, oldest first, 1,000 at most;
    /// how many they were: 0 once there are none that may go. What a kill right now must find
    /// stays, and so does the last row.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn prune_audit(&self, upto: i64) -> Result<u64, FsError> {
        if self.core.is_read_only() || self.scope.read_only {
            return Err(FsError::ReadOnly);
        }
        let now = (self.core.clock)();
        let job = move |txn: &mut dyn WriteTxn| {
            let value = txn.prune_audit(upto, now, PRUNE_ROWS);
            OpResult { commit: value.is_ok(), value, after_commit: None }
        };
        let done = self.worker.write(Cost::Offload, PRUNE_BYTES, false, job).await;
        done.map_err(|error| from_work(&error))?.value.map_err(|error| from_store(&error))
    }
}
