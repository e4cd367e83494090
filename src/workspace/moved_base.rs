//! A base at another path: whether it is the same tree, and the identities of its objects there.

use std::collections::HashSet;
use std::path::Path;

use super::error::{Error, Result};
use crate::base::{Base, BaseAttr, HostDir, HostDirOptions};
use crate::delta::sqlite::{CopiedFileId, CopiedUp, Session};
use crate::delta::{MergedPath, Original};
use crate::vfs::FileKind;

/// Number of copied-up objects that are compared with the new base.
const MAX_COMPARED: usize = 1000;

/// Updates the origin of each copied-up object, and each original, to the inode numbers in another
/// base: a copy of a tree has new ones. Pending content is copied from there if the file has the
/// same size and mtime; files whose content is lost are logged.
pub(super) fn move_copies(session: &mut Session, base: &Path) -> Result<()> {
    let path = session.path().to_owned();
    let store = |source| Error::store(&path, source);
    let copied = session.copied_up(usize::MAX).map_err(store)?;
    let tree = HostDir::open(base, HostDirOptions::default());
    let tree = tree.map_err(|source| Error::base(base, source))?;
    let number = |original: &Original| {
        let found = tree.stat(&original.path).ok();
        found.filter(|found| found.kind == original.kind).map(|found| found.fileid)
    };
    session.renumber_originals(&mut { number }).map_err(store)?;
    if copied.is_empty() {
        return Ok(());
    }
    let there = |copy: &CopiedUp| {
        tree.stat(&copy.path).ok().filter(|attr: &BaseAttr| attr.kind == copy.kind)
    };
    let mut found: Vec<_> = copied.iter().map(|copy| (copy, there(copy))).collect();
    // Several copies may have one base path, because the host replaced the object. The newest copy
    // belongs to the current base object, unless file numbers say otherwise (invariant O2).
    let has_number = |copy: &CopiedUp, attr: &BaseAttr| attr.fileid == copy.fileid;
    found.sort_by_key(|(copy, attr)| {
        let is_same = attr.as_ref().is_some_and(|attr| has_number(copy, attr));
        (!is_same, std::cmp::Reverse(copy.delta_ino))
    });
    let (mut taken, mut linked) = (HashSet::new(), HashSet::new());
    let mut moved = Vec::with_capacity(found.len());
    for (copy, attr) in found {
        let mut is_free = |attr: &BaseAttr| {
            let has_links = copy.kind != FileKind::Directory && copy.nlink > 1 && attr.nlink > 1;
            taken.insert((attr.fileid, &copy.path)) && (!has_links || linked.insert(attr.fileid))
        };
        let attr = attr.filter(|attr| is_free(attr));
        moved.push((copy, attr.map(|attr| identity(copy, &attr))));
    }
    let is_lost = |(copy, now): &&(&CopiedUp, Option<CopiedFileId>)| {
        copy.is_pending && now.is_none_or(|now| now.ctime.is_none())
    };
    let lost: Vec<_> = moved.iter().filter(is_lost).map(|(copy, _)| &copy.path).collect();
    if let Some(first) = lost.iter().min() {
        tracing::warn!(
            session = %path.display(),
            files = lost.len(),
            first = %MergedPath::of_base(first).display(),
            hint = "serve the session over its own base once, to finish the copies; else write \
                    these files again, or discard them",
            "content of these files is still to be copied, and the given base does not have it: \
             reading it fails"
        );
    }
    session.record_moved(&moved).map_err(store)
}

/// The identity of a copied-up object in another base.
fn identity(copy: &CopiedUp, attr: &BaseAttr) -> CopiedFileId {
    let is_file = copy.kind == FileKind::Regular;
    let is_same = attr.mtime == copy.mtime && (!is_file || attr.size == copy.size);
    let is_linked = copy.nlink > 1 || copy.kind == FileKind::Directory;
    CopiedFileId {
        fileid: attr.fileid,
        dev: attr.dev,
        ino: attr.ino,
        nlink: if is_linked { attr.nlink } else { copy.nlink },
        ctime: is_same.then_some(attr.ctime),
    }
}

/// Checks that `base` is the tree that objects were copied up from: at least half of the files and
/// links must exist with the same type and size. If only directories were copied up, those are
/// compared.
pub(super) fn check_moved(session: &Session, base: &Path) -> Result<()> {
    let copied = session.copied_up(MAX_COMPARED);
    let copied = copied.map_err(|source| Error::store(session.path(), source))?;
    let tree = HostDir::open(base, HostDirOptions::default());
    let tree = tree.map_err(|source| Error::base(base, source))?;
    let is_dir = |object: &&CopiedUp| object.kind == FileKind::Directory;
    let only_dirs = copied.iter().all(|object| is_dir(&object));
    let compared: Vec<_> = copied.iter().filter(|object| only_dirs || !is_dir(object)).collect();
    let differs = |object: &&&CopiedUp| {
        tree.stat(&object.path).map_or(true, |found| {
            let is_file = object.kind == FileKind::Regular;
            found.kind != object.kind || is_file && found.size != object.size
        })
    };
    let different: Vec<_> = compared.iter().filter(differs).collect();
    if different.len() * 2 <= compared.len() {
        return Ok(());
    }
    let first =
        different.first().map(|object| MergedPath::of_base(&object.path).display().to_string());
    let first = first.unwrap_or_default();
    Err(Error::NotMoved {
        session: session.path().to_owned(),
        given: base.to_owned(),
        differ: different.len(),
        compared: compared.len(),
        first,
    })
}
