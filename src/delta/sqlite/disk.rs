//! The disk that the session is on.

use std::path::Path;

use crate::delta::{Result, StoreError};
use crate::vfs::FsStat;

/// Figures of the filesystem that holds `path`, as statvfs(3) tells them.
pub(super) fn usage(path: &Path) -> Result<FsStat> {
    let figures = rustix::fs::statvfs(path)
        .map_err(|error| StoreError::Io(format!("statvfs {}: {error}", path.display())))?;
    Ok(FsStat {
        total_bytes: figures.f_blocks.saturating_mul(figures.f_frsize),
        free_bytes: figures.f_bfree.saturating_mul(figures.f_frsize),
        available_bytes: figures.f_bavail.saturating_mul(figures.f_frsize),
        total_files: figures.f_files,
        free_files: figures.f_ffree,
        available_files: figures.f_favail,
    })
}
