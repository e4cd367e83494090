//! Compares and merges the contents of both sides.

use std::ops::Range;

use super::side::Side;
use crate::inspect::content::{MAX_TEXT_BYTES, content};
use crate::inspect::diff::{PIECE_BYTES, at};
use crate::inspect::error::Result;
use crate::inspect::patch::{has_nul, has_too_many_lines};
use crate::inspect::text_merge::{self, TextMerge};
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::FileKind;

/// An object, and the tree that has it.
pub(super) type Seen<'a> = (&'a TreeView<'a>, &'a TreeObject);

/// Whether two objects that both sides made are alike, but for their times.
pub(super) fn is_equal(
    (ours, a): (&Side<'_>, &TreeObject),
    (theirs, b): (&Side<'_>, &TreeObject),
) -> Result<bool> {
    let (x, y) = (a.attr(), b.attr());
    if (x.kind, x.mode, x.uid, x.gid) != (y.kind, y.mode, y.uid, y.gid) {
        return Ok(false);
    }
    has_same_content((ours.new, a), (theirs.new, b))
}

/// Whether two objects of one type have the same content.
pub(super) fn has_same_content((ours, a): Seen<'_>, (theirs, b): Seen<'_>) -> Result<bool> {
    match a.attr().kind {
        FileKind::Regular if a.attr().size != b.attr().size => Ok(false),
        FileKind::Regular => {
            let mut is_same = true;
            each_differing((ours, a), (theirs, b), &mut |_, _| {
                is_same = false;
                Ok(false)
            })?;
            Ok(is_same)
        }
        FileKind::Symlink => {
            let ours = ours.target(a).map_err(|source| at(a.path(), source))?;
            Ok(ours == theirs.target(b).map_err(|source| at(b.path(), source))?)
        }
        FileKind::Block | FileKind::Character => Ok(a.attr().rdev == b.attr().rdev),
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => Ok(true),
    }
}

/// Calls `each` with the pieces of the second file that differ from the first, by offset, until it
/// returns false.
pub(super) fn each_differing(
    (ours, a): Seen<'_>,
    (theirs, b): Seen<'_>,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
) -> Result<()> {
    let (mut here, mut there) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    while let Some(start) = next_data((ours, a), (theirs, b), offset)? {
        let read = |view: &TreeView<'_>, file: &TreeObject, buffer: &mut [u8]| {
            view.read(file, start, buffer).map_err(|source| at(file.path(), source))
        };
        let got = read(theirs, b, &mut there)?;
        if got == 0 {
            break;
        }
        let common = read(ours, a, &mut here)?.min(got);
        // What the first file lacks reads as zeros once it is longer.
        here[common..got].fill(0);
        if here[..got] != there[..got] && !each(start, &there[..got])? {
            break;
        }
        offset = start + got as u64;
    }
    Ok(())
}

/// The next offset at which one of two files has data, within the second.
fn next_data((ours, a): Seen<'_>, (theirs, b): Seen<'_>, offset: u64) -> Result<Option<u64>> {
    let data = |view: &TreeView<'_>, file: &TreeObject| -> Result<Option<Range<u64>>> {
        view.next_data(file, offset).map_err(|source| at(file.path(), source))
    };
    let starts = [data(ours, a)?, data(theirs, b)?];
    let start = starts.into_iter().flatten().map(|data| data.start).min();
    Ok(start.filter(|start| *start < b.attr().size))
}

/// The text that both sides' changes make of the earlier one; `None` if they conflict, or one is no
/// text, or is too large.
pub(super) fn merge_text(
    (old, before): Seen<'_>,
    (ours, a): Seen<'_>,
    (theirs, b): Seen<'_>,
) -> Result<Option<Vec<u8>>> {
    let is_file = |object: &TreeObject| {
        object.attr().kind == FileKind::Regular && object.attr().size <= MAX_TEXT_BYTES
    };
    if ![before, a, b].into_iter().all(is_file) {
        return Ok(None);
    }
    let texts = [content(old, before)?, content(ours, a)?, content(theirs, b)?];
    if texts.iter().any(|text| has_nul(text) || has_too_many_lines(text)) {
        return Ok(None);
    }
    Ok(match text_merge::merge(&texts[0], &texts[1], &texts[2]) {
        TextMerge::Clean(text) => Some(text),
        TextMerge::Conflicts(_) => None,
    })
}
