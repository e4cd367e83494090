//! The disk that the session is on.

use std::io;
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

/// Whether a write that fails there says nothing of those before it.
///
/// On a network, a write may be told that one before it found no room, and the next sync is not
/// told any more: whoever lets such an error pass has lost what that one wrote. So this is true
/// of filesystems that are known to tell each of its own.
pub(super) fn tells_each_write(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|figures| is_known(&figures))
}

#[cfg(target_os = "linux")]
fn is_known(figures: &rustix::fs::StatFs) -> bool {
    /// statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, bcachefs, ZFS, overlayfs.
    const LOCAL: [u32; 8] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0x0102_1994,
        0xF2F5_2010,
        0xCA45_1A4E,
        0x2FC1_2FC1,
        0x794C_7630,
    ];
    // Its type differs between machines; the numbers have 32 bits.
    LOCAL.contains(&(figures.f_type as u32))
}

#[cfg(target_vendor = "apple")]
fn is_known(figures: &rustix::fs::StatFs) -> bool {
    let name = figures.f_fstypename.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    let name: Vec<u8> = name.collect();
    name == b"apfs" || name == b"hfs"
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn is_known(_figures: &rustix::fs::StatFs) -> bool {
    false
}

/// Gives the file `from` the name `to`, on the same disk, unless something has it.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`]; what the system says.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not every filesystem can.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => {}
            renamed => return renamed.map_err(io::Error::from),
        }
    }
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(from, to)
}
