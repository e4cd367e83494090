//! Path arguments: places in a session's merged tree.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::CliError;
use super::source::SessionSource;
use crate::delta::MergedPath;
use crate::inspect::opened::{OpenSession, merged_path_in, open_session};
use crate::inspect::selection::unquoted;
use crate::mounting::note::Note;

/// The directory of the tree from which relative path arguments begin.
#[derive(Debug)]
pub(super) struct TreePaths(MergedPath);

impl TreePaths {
    /// For an open session.
    pub(super) fn of(opened: &OpenSession) -> Self {
        Self::over(opened.session().path(), opened.base_path())
    }

    /// For a session that another process may serve. It is opened only if one of `given` is
    /// relative, and no other base is named.
    ///
    /// # Errors
    /// The session cannot be opened.
    pub(super) fn of_source(
        source: &SessionSource,
        given: &[impl AsRef<OsStr>],
    ) -> Result<Self, CliError> {
        let is_absolute = |path: &OsStr| path.as_bytes().starts_with(b"/");
        if source.base.is_some() || given.iter().all(|path| is_absolute(path.as_ref())) {
            return Ok(Self::over(&source.session, source.base.as_deref()));
        }
        Ok(Self::over(&source.session, open_session(&source.session)?.base_path()))
    }

    fn over(session: &Path, base: Option<&Path>) -> Self {
        Self(current(session, base).unwrap_or_else(MergedPath::root))
    }

    /// Parses a path argument; one in double quotes has the escapes of git.
    ///
    /// # Errors
    /// It is empty, leads out of the tree, or has an invalid name.
    pub(super) fn one(&self, given: &OsStr) -> Result<MergedPath, CliError> {
        let bytes = unquoted(given.as_bytes());
        let given = bytes.as_deref().map_or(given, OsStr::from_bytes);
        Ok(merged_path_in(&self.0, given)?)
    }

    /// Parses path arguments.
    ///
    /// # Errors
    /// As for [`Self::one`].
    pub(super) fn all(&self, given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
        given.iter().map(|path| self.one(path)).collect()
    }

    /// Parses path arguments; the directory from which relative ones begin if there are none.
    ///
    /// # Errors
    /// As for [`Self::one`].
    pub(super) fn all_or_here(&self, given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
        match given {
            [] => Ok(vec![self.0.clone()]),
            given => self.all(given),
        }
    }
}

/// The path in the tree of the current directory, if it is in the base or in a mount of the
/// session.
pub(super) fn current(session: &Path, base: Option<&Path>) -> Option<MergedPath> {
    let here = env::current_dir().ok()?;
    let session = fs::canonicalize(session).ok();
    let mounts = Note::all().into_iter().filter(|note| Some(&note.session) == session.as_ref());
    let base = base.and_then(|base| fs::canonicalize(base).ok());
    let roots = mounts.map(|note| note.dir).chain(base);
    let below = roots.filter_map(|root| here.strip_prefix(root).ok().map(Path::to_owned)).next()?;
    MergedPath::from_user(below.as_os_str().as_bytes())
}
