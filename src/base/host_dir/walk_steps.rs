//! Walks component by component: on macOS, and on Linux without `openat2`.
//!
//! Each directory is opened with O_NOFOLLOW from the one before it, so that no step can follow a
//! symbolic link, and must be on the base's own mount. Unlike with `openat2`, a mount point is
//! accessed before it is refused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attr::device_of;
use super::walk::{AS_IT_IS, DIR_FLAGS, Reached, retry};

/// Identifies a mounted filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountIdentity {
    /// The mount id (Linux 5.8). Also right for bind mounts, and for filesystems whose objects have
    /// several device numbers.
    #[cfg(target_os = "linux")]
    Number(u64),
    /// The device number.
    Device(u64),
}

impl MountIdentity {
    /// The mount of the open object `fd`.
    pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        #[cfg(target_os = "linux")]
        if let Some(number) = mount_number(fd, b"") {
            return Ok(Self::Number(number));
        }
        Ok(Self::Device(device_of(&rustix::fs::fstat(fd)?)))
    }

    /// Whether the entry `name` of `dir`, whose `stat` is given, is on this mount.
    fn holds(&self, dir: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> bool {
        match *self {
            #[cfg(target_os = "linux")]
            Self::Number(number) => mount_number(dir, name) == Some(number),
            Self::Device(device) => {
                let _ = (dir, name);
                device == device_of(stat)
            }
        }
    }
}

/// The mount id of `name` in `dir`, or of `dir` itself for an empty name.
#[cfg(target_os = "linux")]
fn mount_number(dir: BorrowedFd<'_>, name: &[u8]) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags};
    let empty = if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let flags = AS_IT_IS.union(AtFlags::NO_AUTOMOUNT).union(empty);
    let stat = rustix::fs::statx(dir, name, flags, StatxFlags::MNT_ID).ok()?;
    StatxFlags::from_bits_retain(stat.stx_mask)
        .contains(StatxFlags::MNT_ID)
        .then_some(stat.stx_mnt_id)
}

/// `stat` of `path`, relative to `from`.
pub(super) fn stat(
    from: BorrowedFd<'_>,
    mount: &MountIdentity,
    path: &[u8],
) -> Result<Reached<Stat>, Errno> {
    let (open_dir, name) = parent(from, mount, path)?;
    let dir = open_dir.as_ref().map_or(from, AsFd::as_fd);
    let stat = rustix::fs::statat(dir, name, AS_IT_IS)?;
    Ok(match mount.holds(dir, name, &stat) {
        true => Reached::Object(stat),
        false => Reached::MountPoint,
    })
}

/// The target of the symbolic link `path`, relative to `from`; EINVAL if it is not a link.
pub(super) fn read_link(
    from: BorrowedFd<'_>,
    mount: &MountIdentity,
    path: &[u8],
) -> Result<Reached<Vec<u8>>, Errno> {
    let (open_dir, name) = parent(from, mount, path)?;
    let dir = open_dir.as_ref().map_or(from, AsFd::as_fd);
    // Nothing can be mounted over a symbolic link.
    let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
    Ok(Reached::Object(target.into_bytes()))
}

/// Opens `path`, relative to `from`.
pub(super) fn open(
    from: BorrowedFd<'_>,
    mount: &MountIdentity,
    path: &[u8],
    flags: OFlags,
) -> Result<Reached<OwnedFd>, Errno> {
    let (open_dir, name) = parent(from, mount, path)?;
    let dir = open_dir.as_ref().map_or(from, AsFd::as_fd);
    let fd = retry(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    Ok(match MountIdentity::of(fd.as_fd())? == *mount {
        true => Reached::Object(fd),
        false => Reached::MountPoint,
    })
}

/// Opens the parent directory of `path` (`None`: it is `from`), and returns the name in it. ENOENT
/// if an ancestor is a mount point.
fn parent<'p>(
    from: BorrowedFd<'_>,
    mount: &MountIdentity,
    path: &'p [u8],
) -> Result<(Option<OwnedFd>, &'p [u8]), Errno> {
    let mut open_dir: Option<OwnedFd> = None;
    let mut rest = path;
    while let Some(at) = rest.iter().position(|&b| b == b'/') {
        let dir = open_dir.as_ref().map_or(from, AsFd::as_fd);
        let next = retry(|| rustix::fs::openat(dir, &rest[..at], DIR_FLAGS, Mode::empty()))?;
        if MountIdentity::of(next.as_fd())? != *mount {
            return Err(Errno::NOENT);
        }
        open_dir = Some(next);
        rest = &rest[at + 1..];
    }
    Ok((open_dir, rest))
}
