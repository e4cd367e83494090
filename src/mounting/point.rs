//! A mount point, held by its descriptor, because its path may lead elsewhere at any time.
//!
//! On Linux, root mounts, often on behalf of a user (`sudo`) who can rename parents or replace them
//! by symbolic links. The path is therefore walked once. Checks, mount(2) and umount2(2) then use
//! the descriptor ([decision 0046](../../docs/decisions/0046-mounting-by-descriptor.md)).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::error::{MountError, PlaceAdvice};
use super::user::User;
#[cfg(target_os = "linux")]
use super::walk::{Walked, walk};
use crate::escape;
use crate::system_error::words;

/// A directory that is or will be a mount point. An existing mount is never accessed, because its
/// server may not respond.
#[derive(Debug)]
pub(crate) struct MountPoint {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    walked: Walked,
}

impl MountPoint {
    /// The absolute path, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The error if `dir` cannot be a mount point.
pub(super) fn cannot(dir: &Path, error: &io::Error) -> MountError {
    let shown = escape::name(dir.as_os_str().as_encoded_bytes());
    let failed = MountError::new(format_args!("{shown}: {}", words(error)));
    match error.kind() {
        ErrorKind::NotFound => failed.with_advice(PlaceAdvice::MakeDirectory(dir.to_owned())),
        ErrorKind::NotADirectory => failed.with_advice(PlaceAdvice::CheckPath),
        _ => failed,
    }
}

#[cfg(target_os = "linux")]
impl MountPoint {
    /// Finds `dir`, and opens it unless something is mounted on it.
    ///
    /// # Errors
    /// `dir` does not exist, cannot be reached, or is not a directory.
    pub(crate) fn find(dir: &Path) -> Result<Self, MountError> {
        let (path, walked) = walk(dir)?;
        Ok(Self { path, walked })
    }

    /// The directory `name`, not a symbolic link, in the open directory with the path `within`.
    pub(super) fn within(
        parent: std::os::fd::OwnedFd,
        within: &Path,
        name: &std::ffi::OsStr,
    ) -> io::Result<Self> {
        let walked = Walked::child(parent, name)?;
        Ok(Self { path: within.join(name), walked })
    }

    /// Checks that the directory belongs to root or to `user`, on whose behalf root mounts, and
    /// that a user's symbolic link led only to a directory of that user.
    ///
    /// # Errors
    /// The directory belongs to another user.
    pub(crate) fn check_owner(&self, user: Option<&User>) -> Result<(), MountError> {
        let shown = self.path.display();
        let (owner, linked_by) = (self.walked.owner(), self.walked.redirected_by());
        if let Some(by) = linked_by.filter(|by| owner != Some(*by)) {
            let what = format!("{shown}: a symbolic link of user {by} leads there");
            return Err(MountError::new(what).with_advice(PlaceAdvice::NameRealPath));
        }
        match (owner, user) {
            (Some(owner), Some(user)) if owner != 0 && owner != user.uid => {
                let what = format!("{shown}: belongs to user {owner}, not to {}", user.name);
                let advice = PlaceAdvice::OwnDirectory { user: user.name.clone() };
                Err(MountError::new(what).with_advice(advice))
            }
            _ => Ok(()),
        }
    }

    /// The current path of the directory, which may have been moved.
    pub(crate) fn path_now(&self) -> PathBuf {
        std::fs::read_link(self.by_descriptor()).unwrap_or_else(|_unknown| self.path.clone())
    }

    /// A path to the directory itself, for system calls of this process; no rename affects it.
    pub(super) fn by_descriptor(&self) -> PathBuf {
        self.walked.by_descriptor()
    }

    /// A path to the mount on the directory, for umount2(2) with UMOUNT_NOFOLLOW.
    pub(super) fn mounted_by_descriptor(&self) -> PathBuf {
        self.walked.mounted_by_descriptor()
    }
}

/// Other systems let the owner of a directory mount there, without root's rights.
#[cfg(not(target_os = "linux"))]
impl MountPoint {
    /// Finds `dir`; does not access an existing mount.
    ///
    /// # Errors
    /// `dir` does not exist, or cannot be reached.
    pub(crate) fn find(dir: &Path) -> Result<Self, MountError> {
        let failed = |error: io::Error| cannot(dir, &error);
        let absolute = std::path::absolute(dir).map_err(failed)?;
        let parent = absolute.parent().map(Path::canonicalize).transpose().map_err(failed)?;
        let named = parent.zip(absolute.file_name()).map(|(parent, name)| parent.join(name));
        let path = match named {
            Some(path) if super::table::at(&path)?.is_some() => path,
            _ => absolute.canonicalize().map_err(failed)?,
        };
        Ok(Self { path })
    }

    pub(super) fn within(
        _parent: std::os::fd::OwnedFd,
        within: &Path,
        name: &std::ffi::OsStr,
    ) -> io::Result<Self> {
        Ok(Self { path: within.join(name) })
    }

    pub(crate) fn path_now(&self) -> PathBuf {
        self.path.clone()
    }

    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(crate) fn check_owner(&self, _user: Option<&User>) -> Result<(), MountError> {
        Ok(())
    }

    pub(super) fn by_descriptor(&self) -> PathBuf {
        self.path.clone()
    }

    pub(super) fn mounted_by_descriptor(&self) -> PathBuf {
        self.path.clone()
    }
}
