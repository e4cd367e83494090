//! The other names of a hard-linked file, after `apply` wrote one to the base.

use super::changes::BaseObject;
use super::tree::TreeView;
use crate::base::{BaseAttr, BasePath};
use crate::delta::{InodeRow, MergedPath};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::node::Node;

impl Edit<'_> {
    /// Whether a base file has the session file's content and mode: it was not merged.
    pub(super) fn is_as_applied(
        &self,
        row: &InodeRow,
        path: &MergedPath,
        (base, attr): (&BasePath, &BaseAttr),
    ) -> Result<bool> {
        let tree = TreeView { view: self.view(), knows_base: true };
        let object = tree.object(Node::Delta(Box::new(row.clone())), path.clone())?;
        let base = BaseObject { path: base.clone(), attr: attr.clone() };
        tree.has_base_content(Some(&object), &base, None)
    }

    /// Gives a session file entries at the other names of its base file, after `apply` replaced the
    /// base file at the name `applied`: with a single name left, the base file would show there.
    /// The first of them becomes the origin, with the original.
    pub(super) fn move_to_other_names(
        &mut self,
        row: &mut InodeRow,
        applied: &BasePath,
        keeps: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<()> {
        self.txn.put_inode(row)?;
        let added = self.add_entries_at_base_names(row, keeps)?;
        let Some(now) = added.first() else { return Ok(()) };
        let Some(attr) = self.view().base_attr_at(now)? else { return Ok(()) };
        if let Some(origin) = row.origin.as_mut() {
            origin.nlink = attr.nlink;
            if origin.path == *applied {
                origin.path = now.clone();
                self.copy_original(applied, now)?;
            }
        }
        self.refresh_origin_ctime(row, &attr);
        Ok(())
    }
}
