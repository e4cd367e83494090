//! Deletes the oldest audit rows, also while the session is served.

use crate::delta::WriteTxn;
use crate::vfs::FsError;
use crate::worker::{Cost, OpResult};

use crate::overlay::Overlay;
use crate::overlay::error::{from_store, from_work};

/// Rows deleted per transaction: bounds how long clients' changes wait.
const PRUNE_ROWS: u32 = 1000;

/// Size of the operation in the writer's queue, in bytes.
const PRUNE_BYTES: usize = 512;

impl Overlay {
    /// Deletes up to 1,000 audit rows, oldest first, up to the row `upto`. Returns the number of
    /// deleted rows: 0 when none is left to delete. Keeps the last row, and rows that a restart
    /// after a crash needs.
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
