//! Owner, mode and times of objects, by name in an open directory.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use crate::base::shown_mode;
use crate::vfs::{FileKind, Time};

/// The set-user-ID and set-group-ID bits.
pub(super) const SET_ID: u32 = 0o6000;

/// The attributes that an object should get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attrs {
    /// The expected type; objects of another type are not changed.
    pub kind: FileKind,
    /// Permission bits (12 bits); meaningless for a symbolic link.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of content.
    pub mtime: Time,
}

impl Attrs {
    /// Whether type, mode and owner equal those of `other`.
    pub fn has_rights_of(&self, other: &Self) -> bool {
        let rights = |attrs: &Self| (attrs.kind, attrs.mode, attrs.uid, attrs.gid);
        rights(self) == rights(other)
    }
}

/// The attributes that could not be set for lack of permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unset {
    /// Owner or group.
    pub owner: bool,
    /// Permission bits.
    pub mode: bool,
    /// Times.
    pub times: bool,
}

/// Attributes that another program changed, and that stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangedByOther {
    /// Owner or group.
    pub owner: bool,
    /// Permission bits.
    pub mode: bool,
    /// Last change of content.
    pub time: bool,
}

/// Sets the attributes in which `to` differs from `from`, of the entry `name` of `dir`. One that is
/// neither as in `from` nor as in `to` stays as it is.
// The fields' types differ from platform to platform.
#[allow(clippy::unnecessary_cast)]
pub(super) fn change(
    dir: BorrowedFd<'_>,
    name: &[u8],
    from: &Attrs,
    to: &Attrs,
) -> io::Result<(Unset, ChangedByOther)> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mut changed = ChangedByOther::default();
    let uid = wanted(stat.st_uid, (from.uid, to.uid), &mut changed.owner);
    let gid = wanted(stat.st_gid, (from.gid, to.gid), &mut changed.owner);
    let host_mode = stat.st_mode as u32 & 0o7777;
    let shown = shown_mode(dir, name, host_mode);
    let has_owner = (stat.st_uid, stat.st_gid) == (to.uid, to.gid);
    let is_stripped = || !has_owner && host_mode == to.mode & !SET_ID;
    // The base shows another mode of an object with an ACL than the host.
    let mode = match [to.mode, from.mode].into_iter().find(|mode| [host_mode, shown].contains(mode))
    {
        Some(known) => known,
        // An earlier run could not set the owner.
        None if from.kind != FileKind::Directory && is_stripped() => from.mode,
        None => host_mode,
    };
    let mode = match from.kind {
        FileKind::Symlink => to.mode,
        _ => wanted(mode, (from.mode, to.mode), &mut changed.mode),
    };
    let mtime = Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 };
    let mtime = wanted(mtime, (from.mtime, to.mtime), &mut changed.time);
    let unset = set(dir, name, &Attrs { kind: to.kind, mode, uid, gid, mtime })?;
    Ok((unset, changed))
}

/// The value that an attribute gets which is `now`.
fn wanted<T: Copy + PartialEq>(now: T, (from, to): (T, T), changed: &mut bool) -> T {
    if from != to && now == from {
        return to;
    }
    *changed |= from != to && now != to;
    now
}

/// Sets the attributes that differ, of the entry `name` of `dir`; does not follow a symbolic link.
// The fields' types differ from platform to platform.
#[allow(clippy::unnecessary_cast)]
pub(super) fn set(dir: BorrowedFd<'_>, name: &[u8], attrs: &Attrs) -> io::Result<Unset> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileKind::from_mode(stat.st_mode as u32) != Some(attrs.kind) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut unset = Unset::default();
    let has_owner = (stat.st_uid, stat.st_gid) == (attrs.uid, attrs.gid);
    if !has_owner {
        unset.owner = !allowed(owner(dir, name, &stat, attrs))?;
    }
    let mut wanted = attrs.clone();
    if unset.owner && attrs.kind != FileKind::Directory && attrs.mode & SET_ID != 0 {
        // Otherwise the file would run with the rights of the user who applies.
        (wanted.mode, unset.mode) = (attrs.mode & !SET_ID, true);
    }
    let host_mode = stat.st_mode as u32 & 0o7777;
    let is_link = attrs.kind == FileKind::Symlink;
    if !is_link && host_mode != wanted.mode && shown_mode(dir, name, host_mode) == wanted.mode {
        // Equal to the mode that the base shows: chmod would narrow the mask of the ACL.
        wanted.mode = host_mode;
    }
    // chown clears setuid and setgid, so the mode is set afterwards.
    if !is_link && (host_mode != wanted.mode || !has_owner) {
        unset.mode |= !allowed(mode(dir, name, &wanted))?;
    }
    let mtime = Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 };
    if mtime != attrs.mtime {
        unset.times = !allowed(times(dir, name, attrs.mtime))?;
    }
    Ok(unset)
}

fn allowed(set: Result<(), Errno>) -> io::Result<bool> {
    match set {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn owner(dir: BorrowedFd<'_>, name: &[u8], stat: &Stat, attrs: &Attrs) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(attrs.uid), Gid::from_raw(attrs.gid));
    let set = |uid, gid| rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    match set(Some(uid), Some(gid)) {
        // Try the group alone, which works if it is one of ours.
        Err(Errno::PERM) if stat.st_gid != attrs.gid => {
            let _not_ours = set(None, Some(gid));
            Err(Errno::PERM)
        }
        other => other,
    }
}

// The type differs from platform to platform.
#[allow(clippy::unnecessary_cast)]
fn mode_of(attrs: &Attrs) -> Mode {
    Mode::from_raw_mode(attrs.mode as rustix::fs::RawMode)
}

/// Changes the mode through a descriptor, so that a symbolic link that replaces the object is not
/// followed.
#[cfg(target_os = "linux")]
pub(super) fn mode(dir: BorrowedFd<'_>, name: &[u8], attrs: &Attrs) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;

    use rustix::fs::OFlags;
    let flags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let object = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    // Check the type of the opened object, which may have been replaced since the `stat`.
    if FileKind::from_mode(rustix::fs::fstat(&object)?.st_mode) != Some(attrs.kind) {
        return Err(Errno::NOENT);
    }
    match rustix::fs::chmod(format!("/proc/self/fd/{}", object.as_raw_fd()), mode_of(attrs)) {
        Err(Errno::NOENT) if matches!(attrs.kind, FileKind::Regular | FileKind::Directory) => {
            // /proc is not mounted: open the object for reading.
            let flags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
            let flags = flags.union(OFlags::NONBLOCK);
            rustix::fs::fchmod(rustix::fs::openat(dir, name, flags, Mode::empty())?, mode_of(attrs))
        }
        other => other,
    }
}

/// Changes the mode by name, without following a symbolic link.
#[cfg(not(target_os = "linux"))]
pub(super) fn mode(dir: BorrowedFd<'_>, name: &[u8], attrs: &Attrs) -> Result<(), Errno> {
    rustix::fs::chmodat(dir, name, mode_of(attrs), AtFlags::SYMLINK_NOFOLLOW)
}

fn times(dir: BorrowedFd<'_>, name: &[u8], mtime: Time) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() },
    };
    rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}
