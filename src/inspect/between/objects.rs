//! Compares an object at two moments.

use crate::base::{BaseAttr, BasePath};
use crate::inspect::diff::{ChangedFields, PIECE_BYTES, at};
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, TreeObject, TreeView};
use crate::vfs::FileKind;

/// Whether two objects are one at two moments.
pub(super) fn is_same(before: &TreeObject, after: &TreeObject) -> bool {
    let (before, after) = (before.attr(), after.attr());
    (before.fileid, before.kind) == (after.fileid, after.kind)
}

/// The properties in which an object differs.
pub(super) fn differs(
    (old, before): (&TreeView<'_>, &TreeObject),
    (new, after): (&TreeView<'_>, &TreeObject),
) -> Result<ChangedFields> {
    let (a, b) = (before.attr(), after.attr());
    let content = match a.kind {
        _ if a.kind != b.kind => false,
        FileKind::Regular => a.size != b.size || bytes_differ((old, before), (new, after))?,
        FileKind::Symlink => {
            let target = |view: &TreeView<'_>, link: &TreeObject| {
                view.target(link).map_err(|source| at(link.path(), source))
            };
            target(old, before)? != target(new, after)?
        }
        _ => a.rdev != b.rdev,
    };
    Ok(ChangedFields {
        content,
        mode: a.kind != FileKind::Symlink && a.mode != b.mode,
        owner: (a.uid, a.gid) != (b.uid, b.gid),
        // That of a directory follows from its entries.
        mtime: a.kind != FileKind::Directory && a.mtime != b.mtime,
    })
}

/// Whether the contents of two files of one size differ.
fn bytes_differ(
    (old, before): (&TreeView<'_>, &TreeObject),
    (new, after): (&TreeView<'_>, &TreeObject),
) -> Result<bool> {
    if before.base_path().is_some() && before.base_path() == after.base_path() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let data = |view: &TreeView<'_>, file: &TreeObject, offset| {
        view.next_data(file, offset).map_err(|source| at(file.path(), source))
    };
    let mut offset = 0;
    // A range that is a hole in both files is equal.
    loop {
        let starts = [data(old, before, offset)?, data(new, after, offset)?];
        let start = starts.into_iter().flatten().map(|data| data.start).min();
        let Some(start) = start.filter(|start| *start < after.attr().size) else {
            return Ok(false);
        };
        let read = |view: &TreeView<'_>, file: &TreeObject, buffer: &mut [u8]| {
            view.read(file, start, buffer).map_err(|source| at(file.path(), source))
        };
        let (got, there) = (read(new, after, &mut b)?, read(old, before, &mut a)?);
        if got == 0 || a[..there] != b[..got] {
            return Ok(true);
        }
        offset = start + got as u64;
    }
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
