//! The session that a tool looks at, and paths in it, on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::error::CliError;
use super::mounting::itself;
use crate::delta::MergedPath;
use crate::inspect::opened::{Opened, merged_path};
use crate::inspect::selection::unquoted;

/// A session and its base.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// The session file; it may be served meanwhile.
    #[arg(value_name = "SESSION.db")]
    pub(super) session: PathBuf,

    /// The base directory, where it is not the one that the session names.
    #[arg(long, value_name = "DIR")]
    pub(super) base: Option<PathBuf>,
}

impl Source {
    /// Opens both.
    ///
    /// # Errors
    /// They cannot be opened, or the base cannot be seen from here.
    pub(super) fn open(&self) -> Result<Opened, CliError> {
        itself::refuse(&self.session, self.base.as_deref())?;
        Ok(Opened::open(&self.session, self.base.as_deref())?)
    }
}

/// The paths that were given; the root where none was.
pub(super) fn paths(given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
    if given.is_empty() {
        return Ok(vec![MergedPath::root()]);
    }
    parsed(given)
}

/// The paths that were given; those in double quotes as git prints them.
fn parsed(given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
    let path = |text: &OsString| match unquoted(text.as_bytes()) {
        Some(bytes) => merged_path(&OsString::from_vec(bytes)),
        None => merged_path(text),
    };
    given.iter().map(|text| Ok(path(text)?)).collect()
}
