//! Free space and lengths of files on the session's disk.

use std::io;
use std::path::Path;

use crate::delta::{Result, StoreError};
use crate::system_error::words;
use crate::vfs::FsStat;

/// Size and free space of the filesystem that holds `path`, from statvfs(3).
pub fn usage(path: &Path) -> Result<FsStat> {
    let figures = rustix::fs::statvfs(path).map_err(|error| {
        let error = std::io::Error::from(error);
        let text = format!("statvfs {}: {}", path.display(), words(&error));
        StoreError::io(text).with_source(error)
    })?;
    Ok(FsStat {
        total_bytes: figures.f_blocks.saturating_mul(figures.f_frsize),
        free_bytes: figures.f_bfree.saturating_mul(figures.f_frsize),
        available_bytes: figures.f_bavail.saturating_mul(figures.f_frsize),
        total_files: figures.f_files,
        free_files: figures.f_ffree,
        available_files: figures.f_favail,
    })
}

/// A file's length in bytes; 0 if it does not exist.
pub fn byte_len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Whether this process may not read a file. The file is not opened: to close it would release the
/// locks that SQLite holds on it in this process.
pub fn may_not_read(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(rustix::io::Errno::ACCESS)
}

/// Renames `from` to `to` on one filesystem, if `to` does not exist.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or the error of rename(2).
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // The filesystem does not support RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => {}
            renamed => return renamed.map_err(io::Error::from),
        }
    }
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(from, to)
}
