//! Walks with Linux's `openat2`: the kernel refuses symbolic links and mount points (openat2(2)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::walk::{DIR_FLAGS, Reached, retry};

/// No `..` out of the start, no symbolic link (O_PATH opens a final one itself), no magic link of
/// /proc, no mount point.
const RULES: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Maximum length of a path in one call, in bytes; longer ones are walked in pieces (PATH_MAX is
/// 4096 with the NUL).
const PIECE_BYTES: usize = 4000;

/// Attempts for a walk that fails with EAGAIN: a rename or mount interfered, or the file has a
/// lease of another process.
const ATTEMPTS: usize = 16;

/// Flags for `fstat` and `readlinkat` of the object itself: O_PATH never blocks.
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether the kernel has `openat2` and no seccomp filter forbids it.
pub(super) fn is_available(root: BorrowedFd<'_>) -> bool {
    open_piece(root, b".", DIR_FLAGS).is_ok()
}

/// `stat` of `path`, relative to `from`.
pub(super) fn stat(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<Stat>, Errno> {
    match open(from, path, ITSELF)? {
        Reached::Object(fd) => rustix::fs::fstat(&fd).map(Reached::Object),
        Reached::MountPoint => Ok(Reached::MountPoint),
    }
}

/// The target of the symbolic link `path`, relative to `from`; EINVAL if it is not a link.
pub(super) fn read_link(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<Vec<u8>>, Errno> {
    match open(from, path, ITSELF)? {
        Reached::Object(fd) => match rustix::fs::readlinkat(&fd, c"", Vec::new()) {
            Ok(target) => Ok(Reached::Object(target.into_bytes())),
            // readlinkat with an empty path returns ENOENT for an object that is not a link.
            Err(Errno::NOENT) => Err(Errno::INVAL),
            Err(other) => Err(other),
        },
        Reached::MountPoint => Ok(Reached::MountPoint),
    }
}

/// Opens `path`, relative to `from`.
pub(super) fn open(
    from: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<Reached<OwnedFd>, Errno> {
    match open_in_pieces(from, path, flags) {
        Err(Errno::XDEV) => covered(from, path),
        other => other.map(Reached::Object),
    }
}

/// Distinguishes a mount point from a path below one: the kernel returns EXDEV for both.
fn covered(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<OwnedFd>, Errno> {
    let Some(at) = path.iter().rposition(|&b| b == b'/') else {
        return Ok(Reached::MountPoint);
    };
    match open_in_pieces(from, &path[..at], DIR_FLAGS) {
        Ok(_) => Ok(Reached::MountPoint),
        Err(Errno::XDEV) => Err(Errno::NOENT),
        Err(other) => Err(other),
    }
}

fn open_in_pieces(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut rest = path;
    let mut open_dir: Option<OwnedFd> = None;
    while rest.len() > PIECE_BYTES {
        let Some(at) = rest[..PIECE_BYTES].iter().rposition(|&b| b == b'/') else {
            return Err(Errno::NAMETOOLONG);
        };
        let start = open_dir.as_ref().map_or(from, AsFd::as_fd);
        open_dir = Some(open_piece(start, &rest[..at], DIR_FLAGS)?);
        rest = &rest[at + 1..];
    }
    open_piece(open_dir.as_ref().map_or(from, AsFd::as_fd), rest, flags)
}

fn open_piece(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        outcome = retry(|| rustix::fs::openat2(from, path, flags, Mode::empty(), RULES));
        if !matches!(outcome, Err(Errno::AGAIN)) {
            break;
        }
    }
    outcome
}
