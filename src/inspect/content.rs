//! Reads the whole content of a file, of the session or of the base, and compares the contents.

use std::ops::{ControlFlow, Range};

use super::diff::{
    self, ChangedFields, PIECE_BYTES, at, base_error, content_differs, drifted_original,
};
use super::error::Result;
use super::opened::OpenSession;
use crate::base::{Base, BaseError};
use crate::overlay::{BaseObject, Change, TreeObject, TreeView};
use crate::vfs::FileKind;

/// The largest file that is divided into hunks or merged, in bytes: a merge holds three versions of
/// it in memory.
pub(super) const MAX_TEXT_BYTES: u64 = 8 << 20;

/// Reads the whole content of a file of the merged tree.
pub(super) fn content(view: &TreeView<'_>, file: &TreeObject) -> Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(file.attr().size).unwrap_or(usize::MAX)];
    let mut end = 0;
    while end < content.len() {
        let got = view.read(file, end as u64, &mut content[end..]);
        match got.map_err(|source| at(file.path(), source))? {
            0 => break,
            got => end += got,
        }
    }
    content.truncate(end);
    Ok(content)
}

/// Reads a whole base file; `None` if it is over [`MAX_TEXT_BYTES`] or not as in `base`.
pub(super) fn read_base(
    tree: &dyn Base,
    base: &BaseObject,
) -> std::result::Result<Option<Vec<u8>>, BaseError> {
    if base.attr.size > MAX_TEXT_BYTES {
        return Ok(None);
    }
    let mut content = vec![0; usize::try_from(base.attr.size).unwrap_or(usize::MAX)];
    let (got, now) = tree.read(&base.path, base.attr.fileid, 0, &mut content)?;
    let is_same =
        got == content.len() && (now.size, now.mtime) == (base.attr.size, base.attr.mtime);
    Ok(is_same.then_some(content))
}

/// A file of a tree or of the base, to be compared.
pub(super) trait FileContent {
    /// The next range with data that ends after a byte; `None` if there is none.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>>;

    /// Reads from a byte on; returns the number of bytes, 0 at the end.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}

/// An object, and the tree that has it.
#[derive(Clone, Copy)]
pub(super) struct TreeFile<'a>(pub &'a TreeView<'a>, pub &'a TreeObject);

impl FileContent for TreeFile<'_> {
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.0.next_data(self.1, offset).map_err(|source| at(self.1.path(), source))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(self.1, offset, buffer).map_err(|source| at(self.1.path(), source))
    }
}

struct BaseFile<'a>(&'a OpenSession, &'a BaseObject);

impl FileContent for BaseFile<'_> {
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let Self(opened, BaseObject { path, attr }) = *self;
        let data = opened.base().next_data(path, attr.fileid, offset);
        let data = data.map_err(|source| base_error(opened, path, source))?;
        Ok(data.map(|(start, end)| start.max(offset)..end))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        diff::read_base(self.0, &self.1.path, &self.1.attr, offset, buffer)
    }
}

/// Takes a piece of content, by its offset.
type EachPiece<'a> = dyn FnMut(u64, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Calls `each` with the pieces of a file that differ from an older one, until it breaks. What the
/// older file lacks reads as zeros.
pub(super) fn each_differing(
    old: &dyn FileContent,
    new: &dyn FileContent,
    size: u64,
    each: &mut EachPiece<'_>,
) -> Result<()> {
    let (mut before, mut after) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    loop {
        // A range that is a hole in both files is equal.
        let starts = [old.next_data(offset)?, new.next_data(offset)?];
        let start = starts.into_iter().flatten().map(|data| data.start).min();
        let Some(start) = start.filter(|start| *start < size) else { return Ok(()) };
        let got = new.read(start, &mut after)?;
        if got == 0 {
            // The file is shorter than when it was looked at.
            return each(start, &[]).map(drop);
        }
        let common = old.read(start, &mut before)?.min(got);
        before[common..got].fill(0);
        if before[..got] != after[..got] && each(start, &after[..got])?.is_break() {
            return Ok(());
        }
        offset = start + got as u64;
    }
}

/// Whether the contents of two files differ.
fn do_differ(old: &dyn FileContent, new: &dyn FileContent, size: u64) -> Result<bool> {
    let mut differs = false;
    each_differing(old, new, size, &mut |_, _| {
        differs = true;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(differs)
}

/// Whether the contents of a base file and a file of the same size differ.
pub(super) fn bytes_differ(
    opened: &OpenSession,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<bool> {
    do_differ(&BaseFile(opened, base), &TreeFile(view, after), after.attr().size)
}

/// Whether two objects of one type have another content, target or device number.
pub(super) fn contents_differ(old: TreeFile<'_>, new: TreeFile<'_>) -> Result<bool> {
    let (before, after) = (old.1.attr(), new.1.attr());
    if old.1.base_path().is_some() && old.1.base_path() == new.1.base_path() {
        return Ok(false);
    }
    match before.kind {
        FileKind::Regular if before.size != after.size => Ok(true),
        FileKind::Regular => do_differ(&old, &new, after.size),
        FileKind::Symlink => {
            let target = |TreeFile(view, link): TreeFile<'_>| {
                view.target(link).map_err(|source| at(link.path(), source))
            };
            Ok(target(old)? != target(new)?)
        }
        FileKind::Block | FileKind::Character => Ok(before.rdev != after.rdev),
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => Ok(false),
    }
}

/// Whether the base has all that the session changed of an object, by the same change.
pub(super) fn is_made_in_base(
    opened: &OpenSession,
    view: &TreeView<'_>,
    change: &Change,
    differs: ChangedFields,
) -> Result<bool> {
    let (Some(original), Some(base), Some(after)) =
        (&change.original, &change.before, &change.after)
    else {
        return Ok(false);
    };
    let (theirs, ours) = (&base.attr, after.attr());
    let is_changed = differs.content || differs.mode || differs.owner;
    let are_alike = [original.kind, theirs.kind] == [ours.kind; 2];
    if !is_changed || !are_alike || change.is_link {
        return Ok(false);
    }
    let is_made = |start, theirs, ours| ours == start || ours == theirs;
    let has_rights = (ours.kind == FileKind::Symlink
        || is_made(original.mode, theirs.mode, ours.mode))
        && is_made(original.uid, theirs.uid, ours.uid)
        && is_made(original.gid, theirs.gid, ours.gid);
    if !has_rights || drifted_original(change).is_none() {
        return Ok(has_rights && !differs.content);
    }
    Ok(!differs.content || !content_differs(opened, view, base, after)?)
}
