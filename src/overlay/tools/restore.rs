//! Makes the tree that of a checkpoint again, also while clients have it mounted.
//!
//! Objects keep their numbers and handles: one that is there at both moments stays the same object,
//! a deleted one returns under its old number, and one that was made since is stale. The rows of
//! the session change, and the base does not.

use crate::delta::{
    Checkpoint, MergedPath, RestoreOutcome, RestorePaths, RestoreRequest, RestoredRows,
};
use crate::vfs::{Caller, FileId};

use super::discard::refuse_during_apply;
use super::needed_dirs::TreeChangeError;
use super::restore_paths::{record_restored_paths, restore_at_paths};
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::{OpError, Result};

impl Overlay {
    /// Makes the tree that of a checkpoint, in one change that is synced before this returns. The
    /// tree as it is gets a checkpoint first, in a change of its own: it stays also if the restore
    /// fails for want of room.
    ///
    /// # Errors
    /// The session cannot be changed or read, or has no room: nothing has changed.
    /// [`FsError::TryLater`] while the base has the journal of an unfinished apply, and
    /// [`TreeChangeError::Needed`] if an export needs a directory that would go or move.
    ///
    /// [`FsError::TryLater`]: crate::vfs::FsError::TryLater
    pub async fn restore(
        &self,
        caller: &Caller,
        restore: RestoreRequest,
    ) -> std::result::Result<RestoreOutcome, TreeChangeError> {
        self.restore_scope(caller, restore, None).await
    }

    /// As [`Self::restore`], of some paths alone.
    ///
    /// # Errors
    /// As there.
    pub async fn restore_paths(
        &self,
        caller: &Caller,
        restore: RestoreRequest,
        paths: RestorePaths,
    ) -> std::result::Result<RestoreOutcome, TreeChangeError> {
        self.restore_scope(caller, restore, Some(paths)).await
    }

    async fn restore_scope(
        &self,
        caller: &Caller,
        restore: RestoreRequest,
        paths: Option<RestorePaths>,
    ) -> std::result::Result<RestoreOutcome, TreeChangeError> {
        let restore = RestoreRequest { time: (self.core.clock)(), ..restore };
        let prepared = self.change_rows(true, move |txn| txn.prepare_restore(&restore));
        if let Some(refused) = prepared.await? {
            return Ok(refused);
        }
        self.core.checkpoint_bound.background.wake();
        let is_made = |done: &RestoreOutcome| matches!(done, RestoreOutcome::Restored(_));
        self.change_tree(caller, is_made, move |edit| {
            refuse_during_apply(edit)?;
            let restore = RestoreRequest { time: edit.now, ..restore };
            let done = match &paths {
                None => edit.txn.restore(&restore, None)?,
                Some(paths) => restore_at_paths(edit, &restore, paths)?,
            };
            if let RestoreOutcome::Restored(restored) = &done {
                edit.invalidate(Invalidation::All);
                edit.core.originals.count_again();
                edit.core.copies.forget_losses();
                edit.wakes_copies = true;
                count_subdirs(edit, &restored.rows)?;
                match &paths {
                    None => record_restore(edit, &restored.to, (FileId::ROOT, MergedPath::root()))?,
                    Some(paths) => record_restored_paths(edit, &restored.to, paths)?,
                }
            }
            Ok(done)
        })
        .await
    }
}

/// Counts the subdirectories of changed directories, which is no change of the tree. Where the base
/// does not let it, they are counted whenever a client asks.
fn count_subdirs(edit: &mut Edit<'_>, rows: &RestoredRows) -> Result<()> {
    for ino in &rows.dirs {
        let mut row = edit.view().inode(*ino)?;
        let place = edit.view().place_of_inode(*ino, row.fileid());
        row.subdirs = match place.and_then(|place| edit.view().count_subdirs(&place)) {
            Err(OpError::Store(error)) => return Err(error.into()),
            Err(_) => continue,
            Ok(count) => Some(count),
        };
        edit.txn.put_inode(&row)?;
    }
    Ok(())
}

/// Writes the audit row of a path that was restored with all below it.
pub(super) fn record_restore(
    edit: &mut Edit<'_>,
    to: &Checkpoint,
    object: (FileId, MergedPath),
) -> Result<()> {
    edit.record_restore(object, Some(to.last_op.cast_unsigned()), called(to))
}

/// How the audit log calls a checkpoint.
pub(super) fn called(to: &Checkpoint) -> String {
    let name = to.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("checkpoint {}{name}", to.id)
}
