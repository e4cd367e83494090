//! Reads the whole content of a file, of the session or of the base, and compares the contents.

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

/// Whether the contents of two files of one size differ.
pub(super) fn bytes_differ(
    opened: &OpenSession,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<bool> {
    let (mut old, mut new) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    // A range that is a hole in both files is equal.
    while let Some(start) = next_data(opened, view, base, after, offset)? {
        let got = view.read(after, start, &mut new).map_err(|source| at(after.path(), source))?;
        let there = diff::read_base(opened, &base.path, &base.attr, start, &mut old)?;
        if got == 0 || old[..there] != new[..got] {
            return Ok(true);
        }
        offset = start + got as u64;
    }
    Ok(false)
}

/// The first offset at or after `offset` where either of two files of one size has data.
fn next_data(
    opened: &OpenSession,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
    offset: u64,
) -> Result<Option<u64>> {
    let new = view.next_data(after, offset).map_err(|source| at(after.path(), source))?;
    let old = opened.base().next_data(&base.path, base.attr.fileid, offset);
    let old = old.map_err(|source| base_error(opened, &base.path, source))?;
    let starts = [new.map(|data| data.start), old.map(|(start, _)| start.max(offset))];
    Ok(starts.into_iter().flatten().min().filter(|start| *start < after.attr().size))
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
