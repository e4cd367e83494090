//! The other names of a hard-linked file, after `apply` wrote one to the base.

use super::changes::BaseObject;
use super::tree::TreeView;
use crate::base::{BaseAttr, BasePath};
use crate::delta::{InodeRow, MergedPath};
use crate::overlay::base_names::{add_entries_at_base_names, refresh_origin_ctime};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::node::Node;
use crate::overlay::original::copy_original;

/// Whether a base file has the session file's content and mode: it was not merged.
pub(super) fn is_as_applied(
    edit: &Edit<'_>,
    row: &InodeRow,
    path: &MergedPath,
    (base, attr): (&BasePath, &BaseAttr),
) -> Result<bool> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    let object = tree.object(Node::Delta(Box::new(row.clone())), path.clone())?;
    let base = BaseObject { path: base.clone(), attr: attr.clone() };
    tree.has_base_content(Some(&object), &base, None)
}

/// Gives a session file entries at the other names of its base file, after `apply` replaced the
/// base file at the name `applied`: with a single name left, the base file would show there.
/// The first of them becomes the origin, with the original.
pub(super) fn move_to_other_names(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    applied: &BasePath,
    keeps: &dyn Fn(&MergedPath) -> bool,
) -> Result<()> {
    edit.txn.put_inode(row)?;
    let added = add_entries_at_base_names(edit, row, keeps)?;
    let Some(now) = added.first() else { return Ok(()) };
    let Some(attr) = edit.view().base_attr_at(now)? else { return Ok(()) };
    if let Some(origin) = row.origin.as_mut() {
        origin.nlink = attr.nlink;
        if origin.path == *applied {
            origin.path = now.clone();
            copy_original(edit, applied, now)?;
        }
    }
    refresh_origin_ctime(row, &attr);
    Ok(())
}
