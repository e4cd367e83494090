//! Makes and removes checkpoints, also while the session is served.

use crate::delta::{CheckpointId, MadeCheckpoint, NewCheckpoint, StoreError, WriteTxn};
use crate::vfs::FsError;
use crate::worker::{Cost, OpResult};

use crate::overlay::Overlay;
use crate::overlay::error::{from_store, from_work};

/// Size of the operation in the writer's queue, in bytes.
const CHECKPOINT_BYTES: usize = 1024;

impl Overlay {
    /// Makes a checkpoint of the tree after all changes so far, with the time of the server's
    /// clock. It is on the disk before this returns. [`MadeCheckpoint::Off`] if the session's
    /// server makes none without being asked, and this one is for a command, or would be the first.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn create_checkpoint(&self, new: NewCheckpoint) -> Result<MadeCheckpoint, FsError> {
        let checkpoints = &self.core.checkpoints;
        if !checkpoints.has(new.kind, true)
            || !checkpoints.has(new.kind, false) && self.checkpoint_space().await?.is_none()
        {
            return Ok(MadeCheckpoint::Off);
        }
        let new = NewCheckpoint { time: (self.core.clock)(), ..new };
        let made = self.change_rows(true, move |txn| txn.create_checkpoint(&new)).await;
        self.core.checkpoint_bound.background.wake();
        made
    }

    /// Removes a checkpoint, and what is saved for it alone, in pieces between which clients'
    /// changes run. Returns whether it was there.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn remove_checkpoint(&self, id: CheckpointId) -> Result<bool, FsError> {
        let removed = self.change_rows(true, move |txn| txn.remove_checkpoint(id)).await?;
        while self.free_removed().await? {}
        Ok(removed)
    }

    /// Keeps a checkpoint from retention, because a fork begins there. Returns whether it was
    /// there.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn keep_checkpoint(&self, id: CheckpointId) -> Result<bool, FsError> {
        self.change_rows(true, move |txn| txn.keep_checkpoint(id)).await
    }

    /// Runs a change without an audit row; with `durable`, it is synced before this returns.
    pub(super) async fn change_rows<T: Send + 'static>(
        &self,
        durable: bool,
        mut change: impl FnMut(&mut dyn WriteTxn) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, FsError> {
        if self.core.is_read_only() || self.scope.read_only {
            return Err(FsError::ReadOnly);
        }
        let job = move |txn: &mut dyn WriteTxn| {
            let value = change(txn);
            OpResult { commit: value.is_ok(), value, after_commit: None }
        };
        let done = self.worker.write(Cost::Offload, CHECKPOINT_BYTES, durable, job).await;
        done.map_err(|error| from_work(&error))?.value.map_err(|error| from_store(&error))
    }
}
