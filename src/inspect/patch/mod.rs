//! Writes the changes of a session as a patch in git's format, for `git apply`. It covers files,
//! symbolic links and the executable bit. Directories appear and disappear with their content; the
//! format has no owners, times or special files.

mod binary;
mod blob;
mod blocked;
mod cached_lookup;
mod delta;
mod file;
mod limits;
mod lines;
mod one;
mod pairs;
mod similar;
mod stat;
mod style;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::diff::DiffOptions;
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::tool_owned::OwnedBy;
use crate::delta::MergedPath;
pub use blob::has_nul;
pub(in crate::inspect) use blob::{blob, has_blob};
pub use file::quoted_text;
pub(in crate::inspect) use file::write_file;
pub use limits::{MAX_FILE_BYTES, MAX_RENAME_CANDIDATES};
pub(in crate::inspect) use lines::LineDiff;
pub use lines::has_too_many_lines;
pub use one::write_difference;
pub(in crate::inspect) use pairs::EachPair;
use pairs::Pairs;
pub(in crate::inspect) use stat::count;
pub use stat::{FileStat, PatchStats, Volume, stats};
pub use style::{Escape, Style};

/// What a patch leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchOmissions {
    /// The number of all differences, including those left out.
    pub differences: u64,
    /// The number of special files, which the format cannot represent.
    pub special: u64,
    /// Files that drifted and whose original content was not kept.
    pub unknown: Vec<MergedPath>,
    /// Those of `unknown` that the session deleted.
    pub deleted_unknown: BTreeSet<MergedPath>,
    /// Objects that the base denies access to.
    pub denied: Vec<MergedPath>,
    /// Files at whose path the base has something that `git apply` does not remove, with the path
    /// of that.
    pub blocked: BTreeMap<MergedPath, MergedPath>,
    /// Files larger than [`MAX_FILE_BYTES`], before or after the change. They are counted.
    pub too_large: Vec<MergedPath>,
    /// Objects with a change of owner, or of mode bits that the format cannot represent.
    pub attributes: Vec<MergedPath>,
    /// Objects at paths that the session hides, where the base may have other objects: only the
    /// topmost paths.
    pub hidden: BTreeSet<MergedPath>,
    /// The number of new or deleted directories without files.
    pub empty_dirs: u64,
    /// The number of files that git or context nodes own, by owner and grouping directory.
    pub own: BTreeMap<(OwnedBy, MergedPath), u64>,
    /// Files in which only white space changed, if that is ignored and they are counted.
    pub only_space: BTreeSet<MergedPath>,
    /// The number of files to compare for renames, if it was over the limit and none were compared.
    pub renames_not_looked_for: Option<usize>,
}

/// Why writing a patch failed.
pub(in crate::inspect) enum Failure {
    Inspect(InspectError),
    Io(io::Error),
}

pub(in crate::inspect) type PatchResult = std::result::Result<(), Failure>;

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        Self::Inspect(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes the patch from the base to the merged tree; returns what it leaves out.
///
/// # Errors
/// The session or the base cannot be read. The inner error is one of `out`.
pub fn patch(
    opened: &OpenSession,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> Result<io::Result<PatchOmissions>> {
    patch_as(opened, options, &Style::default(), out)
}

/// Like [`patch`], in another style.
///
/// # Errors
/// As [`patch`].
pub fn patch_as(
    opened: &OpenSession,
    options: &DiffOptions,
    style: &Style,
    out: &mut dyn Write,
) -> Result<io::Result<PatchOmissions>> {
    let mut pairs = Pairs::find(opened, options, style, &mut |_| {})?;
    pairs.largest = MAX_FILE_BYTES;
    let mut failed = None;
    opened.with_tree(|view| {
        if style.is_for_git_apply() {
            pairs.leave_out_blocked(opened, view)?;
        }
        let written =
            pairs.each(opened, view, &mut |old, new| file::write_file(old, new, style, out));
        match written {
            Ok(()) => Ok(()),
            Err(Failure::Inspect(error)) => Err(error),
            Err(Failure::Io(error)) => {
                failed = Some(error);
                Ok(())
            }
        }
    })?;
    Ok(failed.map_or(Ok(pairs.left_out), Err))
}
