//! The error of a host directory that is written to.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::system_error::words;

/// A failed operation on the host.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", .path.display(), words(.source))]
pub struct TargetError {
    /// The path.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl TargetError {
    /// Whether the error concerns this object alone, so that work on others can continue. Causes:
    /// the object is gone or has another type; an ancestor became a symbolic link or a mount point;
    /// an object appeared at the destination; a rename is impossible; or permission is missing.
    pub fn is_of_object(&self) -> bool {
        use rustix::io::Errno;
        let is_loop = self.source.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let kind = self.source.kind();
        is_loop
            || matches!(
                kind,
                ErrorKind::NotFound
                    | ErrorKind::NotADirectory
                    | ErrorKind::IsADirectory
                    | ErrorKind::AlreadyExists
                    | ErrorKind::CrossesDevices
                    | ErrorKind::PermissionDenied
            )
    }
}
