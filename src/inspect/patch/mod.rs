//! What a session changed as a patch in git's format, which `git apply` takes: files, symbolic
//! links, whether a file may be executed. Directories come and go with what is in them; owners,
//! times and special files are beyond the format.

mod binary;
mod blob;
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
use super::opened::Opened;
use super::own::OwnedBy;
use crate::delta::MergedPath;
pub use blob::has_nul;
pub use file::quoted_text;
pub use limits::{MAX_FILE_BYTES, MAX_RENAME_CANDIDATES};
pub(in crate::inspect) use lines::LineDiff;
pub use lines::has_too_many_lines;
pub use one::write_difference;
use pairs::Pairs;
pub use stat::{FileStat, Volume, stats};
pub use style::{Escape, Style};

/// What a patch leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// How many differences there are, in the patch or not.
    pub differences: u64,
    /// Special files, which the format does not know.
    pub special: u64,
    /// Files that the base changed, where what the session began with is not known.
    pub unknown: Vec<MergedPath>,
    /// Files larger than [`MAX_FILE_BYTES`], before or after the change.
    pub too_large: Vec<MergedPath>,
    /// Objects with another owner, or other mode bits than that of who may execute a file.
    pub attributes: Vec<MergedPath>,
    /// What is at paths that the session hides, where the base may have something else: the
    /// topmost ones.
    pub hidden: BTreeSet<MergedPath>,
    /// Directories that are new or gone and have no files in them.
    pub empty_dirs: u64,
    /// Files that programs keep for themselves, by the directory that stands for them.
    pub own: BTreeMap<(OwnedBy, MergedPath), u64>,
    /// How many files would have to be compared to find renames, where those are too many.
    pub renames_not_looked_for: Option<usize>,
}

/// Why a patch is not written.
enum Failure {
    Inspect(InspectError),
    Io(io::Error),
}

type PatchResult = std::result::Result<(), Failure>;

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

/// Writes the patch that makes the merged tree of the base; says what is not in it.
///
/// # Errors
/// The session or the base cannot be read, or `out` takes no more.
pub fn patch(
    opened: &Opened,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> Result<io::Result<LeftOut>> {
    patch_as(opened, options, &Style::default(), out)
}

/// The same in another style.
///
/// # Errors
/// As [`patch`].
pub fn patch_as(
    opened: &Opened,
    options: &DiffOptions,
    style: &Style,
    out: &mut dyn Write,
) -> Result<io::Result<LeftOut>> {
    let mut pairs = Pairs::find(opened, options, style)?;
    let mut failed = None;
    opened.look(|view| {
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
