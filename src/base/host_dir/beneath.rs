//! Directories of the host as places to work from, for whoever writes there (`target`): found
//! as everything in a base is, and never outside of it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use super::walk::{Reached, Walker};
use crate::base::BasePath;

/// A directory of the host, and the way to the directories below it: no symbolic link is
/// followed, and nothing that is mounted below is entered.
#[derive(Debug)]
pub struct Beneath(Walker);

impl Beneath {
    /// Opens the directory `root`, which may be named through symbolic links.
    ///
    /// # Errors
    /// There is none, or we may not enter it.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self(Walker::open(root, false)?))
    }

    /// Opens the directory `path` as a place to work from; nothing can be read from what is
    /// opened.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP for a symbolic link on the way, and EXDEV where something is
    /// mounted.
    pub fn dir(&self, path: &BasePath) -> io::Result<OwnedFd> {
        match self.0.open_anchor(path)? {
            Reached::Object(dir) => Ok(dir),
            Reached::MountPoint => Err(Errno::XDEV.into()),
        }
    }
}
