//! Path arguments: places in a session's merged tree.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::CliError;
use super::operands::kind;
use super::source::SessionSource;
use super::text;
use crate::delta::MergedPath;
use crate::inspect::opened::{OpenSession, merged_path_in, open_session};
use crate::inspect::selection::unquoted;
use crate::mounting::note::Note;
use crate::vfs::FileKind;

/// The directory of the tree from which relative path arguments begin, and the tree.
pub(super) struct TreePaths<'a> {
    here: MergedPath,
    tree: LookupTree<'a>,
}

/// The tree in which a path with a slash at its end is looked up.
enum LookupTree<'a> {
    Given(&'a OpenSession),
    Own(Box<OpenSession>),
    /// No path has a slash at its end.
    Unread,
}

impl<'a> TreePaths<'a> {
    /// For an open session.
    pub(super) fn of(opened: &'a OpenSession) -> Self {
        let here = here(opened.session().path(), opened.base_path());
        Self { here, tree: LookupTree::Given(opened) }
    }

    /// For a session that another process may serve. Its tree is opened only if one of `given` has
    /// a slash at its end; the session only if one is relative, and no other base is named.
    ///
    /// # Errors
    /// The session or its base cannot be opened.
    pub(super) fn of_source(
        source: &SessionSource,
        given: &[impl AsRef<OsStr>],
    ) -> Result<Self, CliError> {
        let is_absolute = |path: &OsStr| path.as_bytes().starts_with(b"/");
        let here = match source.base.as_deref() {
            None if !given.iter().all(|path| is_absolute(path.as_ref())) => {
                here(&source.session, open_session(&source.session)?.base_path())
            }
            base => here(&source.session, base),
        };
        let tree = match given.iter().any(|path| has_slash(path.as_ref())) {
            true => LookupTree::Own(Box::new(source.open()?)),
            false => LookupTree::Unread,
        };
        Ok(Self { here, tree })
    }

    /// Parses a path argument; one in double quotes has the escapes of git.
    ///
    /// # Errors
    /// It is empty, leads out of the tree, has an invalid name, or has a slash at its end, and
    /// something else than a directory is there.
    pub(super) fn one(&self, given: &OsStr) -> Result<MergedPath, CliError> {
        self.named(given).and_then(|path| self.checked(path, given, true))
    }

    /// Parses the path of a file, which may be new.
    ///
    /// # Errors
    /// As for [`Self::one`]; also if it has a slash at its end, and nothing is there.
    pub(super) fn one_file(&self, given: &OsStr) -> Result<MergedPath, CliError> {
        self.named(given).and_then(|path| self.checked(path, given, false))
    }

    fn named(&self, given: &OsStr) -> Result<MergedPath, CliError> {
        let bytes = unquoted(given.as_bytes());
        let given = bytes.as_deref().map_or(given, OsStr::from_bytes);
        Ok(merged_path_in(&self.here, given)?)
    }

    fn checked(
        &self,
        path: MergedPath,
        given: &OsStr,
        may_be_free: bool,
    ) -> Result<MergedPath, CliError> {
        let opened = match &self.tree {
            LookupTree::Given(opened) => opened,
            LookupTree::Own(opened) => &**opened,
            LookupTree::Unread => return Ok(path),
        };
        // A path that cannot be looked up has an error of its own.
        match has_slash(given).then(|| kind(opened, &path)) {
            Some(Ok(Some(kind))) if kind != FileKind::Directory => Err(not_a_directory(&path)),
            Some(Ok(None)) if !may_be_free => Err(not_a_directory(&path)),
            _ => Ok(path),
        }
    }

    /// Parses path arguments.
    ///
    /// # Errors
    /// As for [`Self::one`].
    pub(super) fn all(&self, given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
        given.iter().map(|path| self.one(path)).collect()
    }

    /// Parses path arguments, each with the error if it has a slash at its end, and something else
    /// than a directory is there.
    ///
    /// # Errors
    /// Any other error of [`Self::one`].
    pub(super) fn each(
        &self,
        given: &[OsString],
    ) -> Result<Vec<Result<MergedPath, CliError>>, CliError> {
        given.iter().map(|given| Ok(self.checked(self.named(given)?, given, true))).collect()
    }

    /// Parses path arguments; the directory from which relative ones begin if there are none.
    ///
    /// # Errors
    /// As for [`Self::one`].
    pub(super) fn all_or_here(&self, given: &[OsString]) -> Result<Vec<MergedPath>, CliError> {
        match given {
            [] => Ok(vec![self.here.clone()]),
            given => self.all(given),
        }
    }
}

/// Whether a path argument has a slash at its end: it is, or becomes, a directory.
pub(super) fn has_slash(given: &OsStr) -> bool {
    let bytes = unquoted(given.as_bytes());
    bytes.as_deref().unwrap_or(given.as_bytes()).ends_with(b"/")
}

/// The error for something else than a directory at a path with a slash at its end.
pub(super) fn not_a_directory(path: &MergedPath) -> CliError {
    CliError::new(format!("{}: not a directory", text::name(path.as_bytes()))).about_path()
}

fn here(session: &Path, base: Option<&Path>) -> MergedPath {
    current(session, base).unwrap_or_else(MergedPath::root)
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
