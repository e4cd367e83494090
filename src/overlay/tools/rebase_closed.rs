//! Removes the modes that `apply` gives directories last, because they close them to their owner.
//!
//! An ordinary user can read nothing in such a directory any more, so only its own row and those of
//! the directories above it change. [`Overlay::rebase`] has handled its entries before.

use std::collections::BTreeSet;

use crate::delta::MergedPath;
use crate::vfs::{Caller, FsError};

use super::discard::{refresh_dir_origin, unchanged_dir_attr, update_changed_dirs};
use super::rebase::{RebaseItem, named_now};
use super::tree::visible_dir;
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;

impl Overlay {
    /// Removes the rows of applied directories that have no entries in the session, if the base has
    /// their modes and owners. It is one change, synced before this returns. The audit log has the
    /// rows of these changes from an earlier [`Overlay::rebase`].
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base above these directories cannot be read:
    /// nothing has changed.
    pub async fn rebase_closed(
        &self,
        caller: &Caller,
        applied: Vec<RebaseItem>,
    ) -> std::result::Result<(), FsError> {
        self.core.base.invalidate();
        self.change_unlimited(caller, move |edit| {
            let mut above = BTreeSet::new();
            for applied in &applied {
                let applied = named_now(edit, applied)?;
                if drop_closed(edit, &applied.path)? {
                    above.insert(applied.path.parent());
                }
            }
            update_changed_dirs(edit, above, true)
        })
        .await
    }
}

/// Removes the row of a directory if it adds nothing to the base; returns whether it did. What a
/// client changed since stays: it differs from the base.
fn drop_closed(edit: &mut Edit<'_>, path: &MergedPath) -> Result<bool> {
    let Some(name) = path.name() else { return Ok(false) };
    let Some(place) = visible_dir(edit, path)? else { return Ok(false) };
    let Some(ino) = place.ino else { return Ok(false) };
    let Some((parent, _)) = edit.txn.name_of(ino)? else { return Ok(false) };
    let mut row = edit.view().inode(ino)?;
    refresh_dir_origin(edit, &place, &mut row)?;
    let is_unchanged = unchanged_dir_attr(edit, &place, &row, true)?.is_some();
    if is_unchanged {
        edit.txn.delete_dentry(parent, &name)?;
        edit.txn.delete_inode(ino)?;
    } else {
        edit.txn.put_inode(&row)?;
    }
    edit.invalidate(Invalidation::All);
    Ok(is_unchanged)
}
