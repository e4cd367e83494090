//! Reads the whole content of a file, of the session or of the base.

use super::diff::at;
use super::error::Result;
use crate::base::{Base, BaseError};
use crate::overlay::{BaseObject, TreeObject, TreeView};

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
