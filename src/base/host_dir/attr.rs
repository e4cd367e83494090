//! Converts the host's `stat` to [`BaseAttr`], and error numbers to [`BaseError`].
//!
//! Pure conversions; this module opens nothing.

use rustix::fs::{FileType, Stat};
#[cfg(target_os = "linux")]
use rustix::fs::{Statx, StatxTimestamp};
use rustix::io::Errno;

use crate::base::{BaseAttr, BaseError, hash_fileid};
use crate::vfs::{Device, FileId, FileKind, Time};

/// Unit of `st_blocks`, in bytes; independent of the filesystem's block size (POSIX `sys/stat.h`).
const STAT_BLOCK_BYTES: u64 = 512;

/// The attributes in `stat`, with file numbers for a base whose root is on device `root_dev`.
///
/// Fails with [`BaseError::Io`] for a type that POSIX does not define.
// The fields' types differ from platform to platform.
#[allow(clippy::unnecessary_cast)]
pub(super) fn base_attr(root_dev: u64, stat: &Stat) -> Result<BaseAttr, BaseError> {
    let (dev, ino) = (stat.st_dev as u64, stat.st_ino as u64);
    let Some(kind) = FileKind::from_mode(stat.st_mode as u32) else {
        return Err(BaseError::Io(Errno::NOTSUP.into()));
    };
    Ok(BaseAttr {
        kind,
        mode: stat.st_mode as u32 & 0o7777,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        used: (stat.st_blocks as u64).saturating_mul(STAT_BLOCK_BYTES),
        rdev: device(kind, stat),
        dev,
        ino,
        fileid: hash_fileid(root_dev, dev, ino),
        atime: Time { secs: stat.st_atime as i64, nanos: stat.st_atime_nsec as u32 },
        mtime: Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
        ctime: Time { secs: stat.st_ctime as i64, nanos: stat.st_ctime_nsec as u32 },
    })
}

/// [`base_attr`] for `statx`.
#[cfg(target_os = "linux")]
pub(super) fn base_attr_of_statx(root_dev: u64, stat: &Statx) -> Result<BaseAttr, BaseError> {
    let time = |at: &StatxTimestamp| Time { secs: at.tv_sec, nanos: at.tv_nsec };
    let mode = u32::from(stat.stx_mode);
    let Some(kind) = FileKind::from_mode(mode) else {
        return Err(BaseError::Io(Errno::NOTSUP.into()));
    };
    let rdev = match kind {
        FileKind::Block | FileKind::Character => {
            Device { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor }
        }
        _ => Device::default(),
    };
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok(BaseAttr {
        kind,
        mode: mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(STAT_BLOCK_BYTES),
        rdev,
        dev,
        ino: stat.stx_ino,
        fileid: hash_fileid(root_dev, dev, stat.stx_ino),
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
    })
}

/// The device number of a special file; zero for any other object.
fn device(kind: FileKind, stat: &Stat) -> Device {
    match kind {
        FileKind::Block | FileKind::Character => Device {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        },
        _ => Device::default(),
    }
}

/// The device that the object of `stat` is on.
// The field's type differs from platform to platform.
#[allow(clippy::unnecessary_cast)]
pub(super) fn device_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// The stand-in for a mount point: an empty directory, or an empty file if something is mounted
/// over a file.
///
/// Its number is that of the covered object, which the parent's listing shows. Nothing of the
/// mounted filesystem is used: querying it could block forever if it is our own export. The times
/// are the epoch, so that they never change.
pub(super) fn covered(root_dev: u64, fileid: FileId, kind: FileKind) -> BaseAttr {
    let (mode, nlink) = match kind {
        FileKind::Directory => (0o755, 2),
        _ => (0o444, 1),
    };
    BaseAttr {
        kind,
        mode,
        nlink,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: Device::default(),
        dev: root_dev,
        ino: fileid.0,
        fileid,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    }
}

/// The type in a directory entry; `None` if the host does not return one.
pub(super) fn entry_kind(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::Unknown => return None,
    })
}

/// Maps the error of a lookup in the base.
pub(super) fn path_error(errno: Errno) -> BaseError {
    match errno {
        // ELOOP: an ancestor is a symbolic link. ENAMETOOLONG: the filesystem has no names of that
        // length. ENXIO: a socket, or a device without a driver, replaced a file. ESTALE: the base
        // is on NFS itself, and the object is gone there.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::STALE => BaseError::NotFound,
        Errno::ACCESS | Errno::PERM => BaseError::Denied,
        other => BaseError::Io(other.into()),
    }
}
