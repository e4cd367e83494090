//! Compares and merges the contents of both sides.

use super::side::Side;
use crate::inspect::content::{MAX_TEXT_BYTES, TreeFile, content, contents_differ};
use crate::inspect::error::Result;
use crate::inspect::patch::{has_nul, has_too_many_lines};
use crate::inspect::text_merge::{self, TextMerge};
use crate::overlay::TreeObject;
use crate::vfs::FileKind;

/// Whether two objects that both sides made are alike, but for their times.
pub(super) fn is_equal(
    (ours, a): (&Side<'_>, &TreeObject),
    (theirs, b): (&Side<'_>, &TreeObject),
) -> Result<bool> {
    let (x, y) = (a.attr(), b.attr());
    if (x.kind, x.mode, x.uid, x.gid) != (y.kind, y.mode, y.uid, y.gid) {
        return Ok(false);
    }
    Ok(!contents_differ(TreeFile(ours.new, a), TreeFile(theirs.new, b))?)
}

/// The text that both sides' changes make of the earlier one; `None` if they conflict, or one is no
/// text, or is too large.
pub(super) fn merge_text(
    before: TreeFile<'_>,
    ours: TreeFile<'_>,
    theirs: TreeFile<'_>,
) -> Result<Option<Vec<u8>>> {
    let is_file = |TreeFile(_, object): TreeFile<'_>| {
        object.attr().kind == FileKind::Regular && object.attr().size <= MAX_TEXT_BYTES
    };
    if ![before, ours, theirs].into_iter().all(is_file) {
        return Ok(None);
    }
    let text = |TreeFile(view, file): TreeFile<'_>| content(view, file);
    let texts = [text(before)?, text(ours)?, text(theirs)?];
    if texts.iter().any(|text| has_nul(text) || has_too_many_lines(text)) {
        return Ok(None);
    }
    Ok(match text_merge::merge(&texts[0], &texts[1], &texts[2]) {
        TextMerge::Clean(text) => Some(text),
        TextMerge::Conflicts(_) => None,
    })
}
