//! Compares an object at two moments.

use crate::base::{BaseAttr, BasePath};
use crate::inspect::content::{TreeFile, contents_differ};
use crate::inspect::diff::ChangedFields;
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, TreeObject, TreeView};
use crate::vfs::FileKind;

/// Whether two objects are one at two moments.
pub(in crate::inspect) fn is_same(before: &TreeObject, after: &TreeObject) -> bool {
    let (before, after) = (before.attr(), after.attr());
    (before.fileid, before.kind) == (after.fileid, after.kind)
}

/// The properties in which an object differs. Content that is not to be read counts as changed
/// if anything of the object did.
pub(super) fn differs(
    (old, before): (&TreeView<'_>, &TreeObject),
    (new, after): (&TreeView<'_>, &TreeObject),
    reads_content: bool,
) -> Result<ChangedFields> {
    let (a, b) = (before.attr(), after.attr());
    let content = match a.kind == b.kind {
        false => false,
        true if reads_content => contents_differ(TreeFile(old, before), TreeFile(new, after))?,
        true => a.ctime != b.ctime,
    };
    Ok(ChangedFields {
        content,
        mode: a.kind != FileKind::Symlink && a.mode != b.mode,
        owner: (a.uid, a.gid) != (b.uid, b.gid),
        // That of a directory follows from its entries.
        mtime: a.kind != FileKind::Directory && a.mtime != b.mtime,
    })
}

/// An object at the earlier moment, as differences hold it.
pub(super) fn as_base_object(object: &TreeObject) -> Option<BaseObject> {
    let path = BasePath::from_bytes(&object.path().as_bytes()[1..])?;
    let attr = object.attr();
    let attr = BaseAttr {
        kind: attr.kind,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: attr.rdev,
        dev: 0,
        ino: 0,
        fileid: attr.fileid,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
    };
    Some(BaseObject { path, attr })
}
