//! What can go wrong where something is written.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// A failure of the host.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct TargetError {
    /// Where.
    pub path: PathBuf,
    /// What it says.
    pub source: io::Error,
}

impl TargetError {
    /// Whether it concerns this object alone, so that work on others can go on: it went, what
    /// was on the way became a symbolic link or was mounted over, something came to where
    /// nothing was or has another type, it cannot be renamed, or we may not.
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
