//! Finds directories of the host for `writeback`, which writes there, with the rules of a base.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use super::walk::{Reached, Walker};
use crate::base::BasePath;

/// A directory of the host, and a way to open the directories below it without following a symbolic
/// link or entering a mount.
#[derive(Debug)]
pub struct Beneath(Walker);

impl Beneath {
    /// Opens the directory `root`, which may be named through symbolic links.
    ///
    /// # Errors
    /// There is no such directory, or we may not enter it.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self(Walker::open(root, false)?))
    }

    /// Opens the directory `path` for `*at` calls; its entries cannot be read through the
    /// descriptor.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP for a symbolic link in an ancestor, and EXDEV for a mount point.
    pub fn dir(&self, path: &BasePath) -> io::Result<OwnedFd> {
        match self.0.open_dir(path)? {
            Reached::Object(dir) => Ok(dir),
            Reached::MountPoint => Err(Errno::XDEV.into()),
        }
    }
}
