//! Makes the tree that of a checkpoint again, also while clients have it mounted.
//!
//! Objects keep their numbers and handles: one that is there at both moments stays the same object,
//! a deleted one returns under its old number, and one that was made since is stale. The rows of
//! the session change; the base is not looked at.

use crate::delta::{Checkpoint, NewCheckpoint, RestoreOutcome, RestoreRequest, RestoredRows};
use crate::vfs::{Caller, FsError};

use super::discard::refuse_during_apply;
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;

impl Overlay {
    /// Makes the tree that of a checkpoint, in one change that is synced before this returns. The
    /// tree as it is gets a checkpoint first, which stays also if the restore fails.
    ///
    /// # Errors
    /// The session cannot be changed or read, or has no room: nothing has changed.
    /// [`FsError::TryLater`] while the base has the journal of an unfinished apply.
    pub async fn restore(
        &self,
        caller: &Caller,
        restore: RestoreRequest,
    ) -> std::result::Result<RestoreOutcome, FsError> {
        let safety = NewCheckpoint::before_restore(restore.to, restore.time);
        self.create_checkpoint(safety).await?;
        self.change_synced(caller, move |edit| {
            refuse_during_apply(edit)?;
            let done = edit.txn.restore(&RestoreRequest { time: edit.now, ..restore })?;
            if let RestoreOutcome::Restored(restored) = &done {
                edit.invalidate(Invalidation::All);
                edit.core.originals.count_again();
                edit.core.copies.forget_losses();
                edit.wakes_copies = true;
                count_subdirs(edit, &restored.rows)?;
                record_restore(edit, &restored.to)?;
            }
            Ok(done)
        })
        .await
    }
}

/// Counts the subdirectories of changed directories.
fn count_subdirs(edit: &mut Edit<'_>, rows: &RestoredRows) -> Result<()> {
    for ino in &rows.dirs {
        let mut row = edit.view().inode(*ino)?;
        let counted = edit.view().place_of_inode(*ino, row.fileid());
        row.subdirs = match counted.and_then(|place| edit.view().count_subdirs(&place)) {
            Ok(count) => Some(count),
            // It is counted whenever a client asks.
            Err(_) => continue,
        };
        // Not a change of the tree.
        edit.txn.put_inode(&row)?;
    }
    Ok(())
}

fn record_restore(edit: &mut Edit<'_>, to: &Checkpoint) -> Result<()> {
    let name = to.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let note = format!("checkpoint {}{name}", to.id);
    edit.record_restore(to.last_op.cast_unsigned(), note)
}
