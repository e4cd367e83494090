//! What precedes a restore in its transaction: its conditions, and the checkpoint of the tree as it
//! is.

use crate::delta::{
    Checkpoint, CheckpointId, MadeCheckpoint, NewCheckpoint, RestoreOutcome, RestoreRequest,
    Result, StoreError, WriteTxn,
};

use super::batch::OpenBatch;
use crate::delta::sqlite::table::{checkpoint, checkpoint_space};

impl OpenBatch {
    /// The checkpoint to be restored, or why it is not.
    pub(super) fn check_restore(
        &self,
        restore: &RestoreRequest,
    ) -> Result<std::result::Result<Checkpoint, RestoreOutcome>> {
        let Some(to) = checkpoint::get(&self.conn, restore.to)? else {
            return Ok(Err(RestoreOutcome::NoCheckpoint));
        };
        if let Some(seen) = restore.seen
            && checkpoint::is_changed_since(&self.conn, seen)?
        {
            return Ok(Err(RestoreOutcome::ChangedSince));
        }
        Ok(Ok(to))
    }

    /// Makes the checkpoint of the tree as it is, and stores both checkpoints as those of the last
    /// restore: they stay when others are removed for space.
    pub(super) fn create_safety_checkpoint(
        &mut self,
        restore: &RestoreRequest,
    ) -> Result<CheckpointId> {
        let safety = NewCheckpoint::before_restore(restore.to, restore.time);
        let before = match self.create_checkpoint(&safety)? {
            MadeCheckpoint::Made(made) | MadeCheckpoint::Reused(made) => made.id,
            // It has no name, and the store itself turns none off.
            MadeCheckpoint::NameTaken | MadeCheckpoint::Off => {
                return Err(StoreError::io("the checkpoint before a restore was not made"));
            }
        };
        self.change(|conn| checkpoint_space::put_last_restore(conn, restore.to, before))?;
        Ok(before)
    }
}
