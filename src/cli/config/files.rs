//! Opens the tree behind a mount before it is served: a session, or the base of a new one.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Base, BaseError, BasePath, HostDir, HostDirOptions};
use crate::config::MountConfig;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::{OpenSession, find};
use crate::system_error::words;
use crate::vfs::{FileKind, FsError};

/// The tree behind a mount.
pub(super) enum MountTree {
    /// An existing session and its base.
    Session(Box<OpenSession>),
    /// The base of a new session.
    Base(Arc<dyn Base>),
    /// An empty tree: a new session without a base.
    Empty,
}

/// How far a path exists.
pub(super) enum PathReach {
    /// The path leads to a directory.
    There,
    /// The rest of the path is missing; its directories can be created.
    Missing,
    /// This part of the path is not a directory.
    Blocked(String),
}

impl MountTree {
    /// Opens the tree behind a mount. Creates and changes nothing.
    ///
    /// # Errors
    /// The message if the session or the base cannot be opened.
    pub(super) fn open(mount: &MountConfig) -> Result<Self, String> {
        if let Some(session) = mount.session().filter(|session| is_there(session)) {
            let opened = OpenSession::open(session, mount.base.as_deref());
            return Ok(Self::Session(Box::new(opened.map_err(|error| error.to_string())?)));
        }
        let Some(base) = &mount.base else { return Ok(Self::Empty) };
        Ok(Self::Base(open_base(base)?))
    }

    /// How far the path with these components exists.
    ///
    /// # Errors
    /// The message if the path cannot be looked up.
    pub(super) fn reach(&self, names: &[&str]) -> Result<PathReach, String> {
        let mut path = String::new();
        for name in names {
            path.push('/');
            path.push_str(name);
            match self.kind(&path)? {
                Some(FileKind::Directory) => {}
                Some(_) => return Ok(PathReach::Blocked(path)),
                None => return Ok(PathReach::Missing),
            }
        }
        Ok(PathReach::There)
    }

    fn kind(&self, path: &str) -> Result<Option<FileKind>, String> {
        match self {
            Self::Session(opened) => {
                let Some(path) = MergedPath::from_bytes(path.as_bytes()) else { return Ok(None) };
                match opened.with_tree(|view| find(view, &path)) {
                    Ok(object) => Ok(Some(object.attr().kind)),
                    Err(InspectError::Path { source: FsError::NotFound, .. }) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Base(base) => {
                let path = path.trim_start_matches('/').as_bytes();
                let Some(path) = BasePath::from_bytes(path) else { return Ok(None) };
                match base.stat(&path) {
                    Ok(attr) => Ok(Some(attr.kind)),
                    Err(BaseError::NotFound) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Empty => Ok(None),
        }
    }
}

/// Opens a directory as a base.
///
/// # Errors
/// The message if the directory cannot be opened.
pub(super) fn open_base(dir: &Path) -> Result<Arc<dyn Base>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("base {}: {error}", dir.display());
    let real = fs::canonicalize(dir).map_err(|error| failed(&words(&error)))?;
    if !real.is_dir() {
        return Err(failed(&"not a directory"));
    }
    let opened = HostDir::open(&real, HostDirOptions::default());
    Ok(Arc::new(opened.map_err(|error| failed(&error))?))
}

/// Whether `path` exists, without following a link; serving makes the same check.
pub(super) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
