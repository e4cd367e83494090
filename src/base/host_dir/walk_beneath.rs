//! Walking with Linux's `openat2`: the kernel refuses links and mount points (openat2(2)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::walk::{ANCHOR, Reached, retry};

/// No `..` out of the start, no symbolic link (a last one is opened as itself with O_PATH), no
/// link of /proc, nothing mounted.
const RULES: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Bytes of a path that one call takes; longer ones are walked in pieces (PATH_MAX is 4096 with
/// the NUL).
const PIECE_BYTES: usize = 4000;

/// How often a walk is tried that the kernel gave up (EAGAIN: a rename or a mount got in its
/// way; EAGAIN is also what a file under another process's lease says).
const ATTEMPTS: usize = 16;

/// The object itself, for `fstat` and `readlinkat`: not opened, so nothing blocks.
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether this kernel has `openat2` and no filter forbids it.
pub(super) fn is_available(root: BorrowedFd<'_>) -> bool {
    open_piece(root, b".", ANCHOR).is_ok()
}

/// `stat` of `path`, seen from `from`.
pub(super) fn stat(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<Stat>, Errno> {
    match open(from, path, ITSELF)? {
        Reached::Object(fd) => rustix::fs::fstat(&fd).map(Reached::Object),
        Reached::MountPoint => Ok(Reached::MountPoint),
    }
}

/// The target of the symbolic link `path`, seen from `from`; EINVAL if it is none.
pub(super) fn read_link(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<Vec<u8>>, Errno> {
    match open(from, path, ITSELF)? {
        Reached::Object(fd) => match rustix::fs::readlinkat(&fd, c"", Vec::new()) {
            Ok(target) => Ok(Reached::Object(target.into_bytes())),
            // What readlinkat with an empty path says of anything but a link.
            Err(Errno::NOENT) => Err(Errno::INVAL),
            Err(other) => Err(other),
        },
        Reached::MountPoint => Ok(Reached::MountPoint),
    }
}

/// Opens `path`, seen from `from`.
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

/// Tells a mount point from a path below one: both are EXDEV to the kernel.
fn covered(from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<OwnedFd>, Errno> {
    let Some(at) = path.iter().rposition(|&b| b == b'/') else {
        return Ok(Reached::MountPoint);
    };
    match open_in_pieces(from, &path[..at], ANCHOR) {
        Ok(_) => Ok(Reached::MountPoint),
        Err(Errno::XDEV) => Err(Errno::NOENT),
        Err(other) => Err(other),
    }
}

fn open_in_pieces(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut rest = path;
    let mut anchor: Option<OwnedFd> = None;
    while rest.len() > PIECE_BYTES {
        let Some(at) = rest[..PIECE_BYTES].iter().rposition(|&b| b == b'/') else {
            return Err(Errno::NAMETOOLONG);
        };
        let start = anchor.as_ref().map_or(from, AsFd::as_fd);
        anchor = Some(open_piece(start, &rest[..at], ANCHOR)?);
        rest = &rest[at + 1..];
    }
    open_piece(anchor.as_ref().map_or(from, AsFd::as_fd), rest, flags)
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
