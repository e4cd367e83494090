//! Opens a session with its base to read them; a server may have the session open as well.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Base, BaseError, BasePath, Empty, Hiding, HostDir, HostDirOptions};
use crate::delta::sqlite::{Host, OpenMode, Session};
use crate::delta::{Checkpoint, MergedPath, StoreError};
use crate::overlay::{LostDir, Tree, TreeObject, TreeView};
use crate::system_error::words;
use crate::vfs::FsError;

use super::error::{InspectError, Result};

/// An open session and its base.
pub struct OpenSession {
    session: Session,
    base: Option<PathBuf>,
    lower: Arc<dyn Base>,
    /// The base, including what the session hides.
    whole: Arc<dyn Base>,
    tree: Tree,
}

impl OpenSession {
    /// Opens the session file `path` over the directory `base`, or over the one that it records.
    ///
    /// # Errors
    /// `path` is not a session, or the base cannot be opened.
    pub fn open(path: &Path, base: Option<&Path>) -> Result<Self> {
        Self::open_as(path, base, OpenMode::Inspect)
    }

    /// Like [`OpenSession::open`], in another mode.
    ///
    /// # Errors
    /// Also that a server has the session, in a mode that excludes this.
    pub fn open_as(path: &Path, base: Option<&Path>, mode: OpenMode) -> Result<Self> {
        Self::over(Session::open(path, mode, &host()?)?, base)
    }

    /// Opens a session over the directory `base`, or over the one that it records.
    ///
    /// # Errors
    /// The base cannot be opened.
    pub fn over(session: Session, base: Option<&Path>) -> Result<Self> {
        let (base, is_recorded) = match (base, session.base_path()) {
            (Some(given), _) => (Some(given.to_owned()), false),
            (None, recorded) => (recorded.map(Path::to_owned), true),
        };
        let whole: Arc<dyn Base> = match &base {
            Some(dir) => {
                let opened = open_base(&session, dir);
                Arc::new(opened.map_err(|source| InspectError::Base {
                    path: dir.clone(),
                    is_recorded,
                    source,
                })?)
            }
            None => Arc::new(Empty),
        };
        let lower = Hiding::over(Arc::clone(&whole), session.hidden());
        let tree =
            Tree::new(&session, Arc::clone(&lower)).map_err(|source| failed(&session, source))?;
        Ok(Self { session, base, lower, whole, tree })
    }

    /// Opens the session file `path` with the tree as it was at a checkpoint, over the directory
    /// `base`, or over the one that it records.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_at(path: &Path, base: Option<&Path>, at: &Checkpoint) -> Result<Self> {
        let mut session = open_session(path)?;
        session.show_at(at);
        Self::over(session, base)
    }

    /// Opens the session with an empty base. What the session stores itself can be read; content
    /// that is still pending in the base cannot (invariant C2).
    ///
    /// # Errors
    /// `path` is not a session.
    pub fn open_without_base(path: &Path) -> Result<Self> {
        Self::over_nothing(open_session(path)?)
    }

    /// Opens a session with an empty base.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn over_nothing(session: Session) -> Result<Self> {
        let tree = Tree::without_base(&session).map_err(|source| failed(&session, source))?;
        let (lower, whole): (Arc<dyn Base>, Arc<dyn Base>) = (Arc::new(Empty), Arc::new(Empty));
        Ok(Self { session, base: None, lower, whole, tree })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The base directory, if there is one.
    pub fn base_path(&self) -> Option<&Path> {
        self.base.as_deref()
    }

    /// The base without what the session hides: the lower layer of the merged tree.
    pub fn base(&self) -> &dyn Base {
        &*self.lower
    }

    /// The base including what the session hides, for writes to the base.
    pub(super) fn whole_base(&self) -> &dyn Base {
        &*self.whole
    }

    /// Like [`Self::base`], shared.
    pub(super) fn lower(&self) -> Arc<dyn Base> {
        Arc::clone(&self.lower)
    }

    /// The directories that the session moved and whose base directories are gone.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn lost_dirs(&self) -> Result<Vec<LostDir>> {
        let at = |source| InspectError::Path { path: MergedPath::root(), source };
        self.with_tree(|view| view.lost_dirs().map_err(at))
    }

    /// Runs `f` on a snapshot of the merged tree.
    ///
    /// # Errors
    /// An error of `f`, or the session cannot be read.
    pub fn with_tree<T>(&self, f: impl FnOnce(&TreeView<'_>) -> Result<T>) -> Result<T> {
        let mut failed = None;
        let looked = self.tree.with_tree(|view| {
            f(view).map_err(|error| {
                failed = Some(error);
                FsError::Io
            })
        });
        looked.map_err(|source| {
            let path = MergedPath::root();
            failed.take().unwrap_or(InspectError::Path { path, source })
        })
    }
}

/// Refuses paths at which neither the session nor its base has or had an object.
///
/// # Errors
/// There is such a path, or the session or the base cannot be read.
pub fn check_known(opened: &OpenSession, paths: &[MergedPath]) -> Result<()> {
    opened.with_tree(|view| {
        for path in paths {
            if !is_known(opened, view, path)? {
                return Err(InspectError::Unknown { path: path.clone(), is_from_root: true });
            }
        }
        Ok(())
    })
}

/// Whether the session or its base has or had an object at a path.
///
/// # Errors
/// The session or the base cannot be read.
pub fn is_known(opened: &OpenSession, view: &TreeView<'_>, path: &MergedPath) -> Result<bool> {
    let failed = |source| InspectError::Path { path: path.clone(), source };
    let is_shown = match view.find(path) {
        Err(FsError::NotDirectory) => false,
        found => found.map_err(failed)?.is_some(),
    };
    let base = BasePath::from_bytes(&path.as_bytes()[1..]);
    Ok(is_shown
        || view.name_state(path).map_err(failed)?.is_whited_out
        || base.is_some_and(|base| opened.base().stat(&base).is_ok()))
}

/// Opens a session to read it, without its base.
///
/// # Errors
/// `path` is not a session.
pub fn open_session(path: &Path) -> Result<Session> {
    Ok(Session::open(path, OpenMode::Inspect, &host()?)?)
}

/// The properties of this machine that a session needs.
///
/// # Errors
/// The system has no random bytes.
pub fn host() -> Result<Host> {
    Host::current().map_err(|error| InspectError::Invalid {
        what: format!("cannot get random bytes: {}", words(&error)),
    })
}

/// The object at a path.
///
/// # Errors
/// The path is free, or cannot be looked up.
pub fn find(view: &TreeView<'_>, path: &MergedPath) -> Result<TreeObject> {
    let found = view.find(path).and_then(|found| found.ok_or(FsError::NotFound));
    found.map_err(|source| InspectError::Path { path: path.clone(), source })
}

/// The object at a path; `None` if the path is free.
///
/// # Errors
/// The path cannot be looked up.
pub(super) fn find_if_there(view: &TreeView<'_>, path: &MergedPath) -> Result<Option<TreeObject>> {
    match view.find(path) {
        Err(FsError::NotDirectory | FsError::NotFound) => Ok(None),
        found => found.map_err(|source| InspectError::at(path, source)),
    }
}

/// The error about an empty path.
pub(super) const EMPTY_PATH: &str = "an empty path names nothing; `.` is the current directory";

/// Parses a path of the merged tree as a user writes it, from the root.
///
/// # Errors
/// As for [`merged_path_in`].
pub fn merged_path(text: &OsStr) -> Result<MergedPath> {
    merged_path_in(&MergedPath::root(), text)
}

/// Parses a path of the merged tree as a user writes it. A relative one begins at the directory
/// `dir` of the tree.
///
/// # Errors
/// The path is empty, leads out of the tree, or has an invalid name.
pub fn merged_path_in(dir: &MergedPath, text: &OsStr) -> Result<MergedPath> {
    let invalid = |what| InspectError::Invalid { what };
    if text.is_empty() {
        return Err(invalid(EMPTY_PATH.to_owned()));
    }
    let outside = || invalid(format!("{}: not a path in the session's tree", text.display()));
    dir.resolve(text.as_bytes()).ok_or_else(outside)
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}

fn open_base(session: &Session, dir: &Path) -> std::result::Result<HostDir, BaseError> {
    let real = fs::canonicalize(dir)?;
    HostDir::open(&real, HostDirOptions { hidden: below(&session.files(), &real) })
}

/// The paths relative to `base` of those `files` that are in it.
pub fn below(files: &[PathBuf], base: &Path) -> Vec<BasePath> {
    let inside = |file: &PathBuf| {
        let path: &OsStr = file.strip_prefix(base).ok()?.as_os_str();
        BasePath::from_bytes(path.as_bytes())
    };
    files.iter().filter_map(inside).collect()
}
