//! Whether an object of the base shows elsewhere in the session, or still at its name.

use std::collections::HashSet;

use super::{BaseObject, ChangeSearch};
use crate::base::BasePath;
use crate::delta::{Ino, InodeRow, Origin};
use crate::overlay::error::Result;
use crate::overlay::followed::{now_of, recorded_of};
use crate::overlay::node::is_linked;
use crate::vfs::FileKind;

impl ChangeSearch<'_> {
    /// As [`TreeView::is_moved_away`].
    pub(super) fn moved_away(&self, object: &BaseObject) -> Result<bool> {
        let view = self.view();
        let recorded = recorded_of(view, &object.path)?.unwrap_or_else(|| object.path.clone());
        if object.attr.kind == FileKind::Directory {
            let is_redirected = view.txn.redirected_to(&recorded)?.is_some();
            if is_redirected && now_of(view, &recorded)? == object.path {
                return Ok(true);
            }
            // A sealed one has no redirect, and a copied base has directories with other numbers.
            if !is_redirected && self.copied_up_dirs()?.contains(&recorded) {
                return Ok(true);
            }
        }
        // A file that got the number of a moved directory is not that directory.
        let is_type = |row: &InodeRow| {
            row.kind != FileKind::Directory || object.attr.kind == FileKind::Directory
        };
        let is_it = |row: &InodeRow, origin: &Origin| origin.path == recorded && is_type(row);
        let Some(row) = self.view().copy_of(object.attr.fileid, is_it)? else {
            // After an editor saved by a rename, only the original has the number that moved away.
            let original = self.view().txn.original(&recorded)?;
            let Some(original) = original.filter(|o| o.fileid != object.attr.fileid) else {
                return Ok(false);
            };
            return Ok(self.view().copy_of(original.fileid, is_it)?.is_some());
        };
        // A hard-linked file moved only if the session gave it a name that the base does not have.
        let is_linked = is_linked(object.attr.kind, object.attr.nlink);
        Ok(!is_linked || self.has_new_name(row.ino, object)?)
    }

    fn copied_up_dirs(&self) -> Result<&HashSet<BasePath>> {
        if let Some(known) = self.copied_up_dirs.get() {
            return Ok(known);
        }
        let found = self.view().txn.copied_up_dirs()?;
        Ok(self.copied_up_dirs.get_or_init(|| found.into_iter().collect()))
    }

    fn has_new_name(&self, ino: Ino, object: &BaseObject) -> Result<bool> {
        let view = self.view();
        let Some((parent, name)) = view.txn.name_of(ino)? else { return Ok(false) };
        let place = view.place_of_inode(parent, view.shown(parent)?)?;
        let Some(base) = &place.base else { return Ok(true) };
        let known = self.base_object(base.join(&name))?;
        Ok(known.is_none_or(|known| known.attr.fileid != object.attr.fileid))
    }

    /// Whether the merged tree still shows a copied-up object at its base name.
    pub(super) fn still_shows(&self, origin: &Origin) -> Result<bool> {
        let Some((parent, name)) = origin.path.split() else { return Ok(false) };
        if let Some(place) = self.view().place_of_base(&parent)?
            && let Some(child) = self.view().child(&place, &name)?
            && child.node.fileid() == origin.fileid
        {
            return Ok(true);
        }
        // The directory may be sealed, and so show nothing of the base.
        let Some(dir) = self.base_object(parent)? else { return Ok(false) };
        let is_dir = |row: &InodeRow, _: &Origin| row.kind == FileKind::Directory;
        let Some(dir) = self.view().copy_of(dir.attr.fileid, is_dir)? else { return Ok(false) };
        let Some(ino) = self.view().txn.dentry(dir.ino, &name)? else { return Ok(false) };
        Ok(self.view().shown(ino)? == origin.fileid)
    }
}
