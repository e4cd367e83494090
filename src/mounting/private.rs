//! A private mount point, in a directory that only its user can enter.
//!
//! Both directories belong to this process's user until the session is mounted, so that no other
//! user can replace them. Then the outer one is given to the user. All operations use descriptors.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchown, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};

use super::point::MountPoint;
use super::user::User;

/// Attempts to find an unused name.
const ATTEMPTS: u32 = 8;

/// Flags to open directories that this process created.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directories `acetate-NUMBER/NAME` in the temporary directory.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    temporary: OwnedFd,
    outer_name: OsString,
    outer: OwnedFd,
    name: OsString,
    point: MountPoint,
}

impl PrivateDir {
    /// Creates both directories; the inner one has the name `name`. `user` will own the outer one.
    ///
    /// # Errors
    /// The directories cannot be created, or the temporary directory belongs to another user.
    pub(crate) fn new(name: &OsStr, user: Option<&User>) -> io::Result<Self> {
        let path = std::env::temp_dir().canonicalize()?;
        let temporary = openat(CWD, &path, DIRECTORY, Mode::empty())?;
        let owner = fstat(&temporary)?.st_uid;
        let ours = [0, geteuid().as_raw(), user.map_or(0, |user| user.uid)];
        if !ours.contains(&owner) {
            let what = format!("{} belongs to user {owner}", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, what));
        }
        let outer_name = make_in(&temporary)?;
        let removed_again = |error: io::Error| {
            let _removed = unlinkat(&temporary, &outer_name, AtFlags::REMOVEDIR);
            error
        };
        let outer = open_ours(&temporary, &outer_name).map_err(removed_again)?;
        let made = mkdirat(&outer, name, Mode::RWXU)
            .map_err(io::Error::from)
            .and_then(|()| MountPoint::within(outer.try_clone()?, &path.join(&outer_name), name));
        match made {
            Ok(point) => Ok(Self { temporary, outer_name, outer, name: name.to_owned(), point }),
            Err(error) => {
                let _removed = unlinkat(&outer, name, AtFlags::REMOVEDIR);
                Err(removed_again(error))
            }
        }
    }

    /// The inner directory.
    pub(crate) fn point(&self) -> &MountPoint {
        &self.point
    }

    /// Gives access to `user` alone. Call it after the mount.
    ///
    /// # Errors
    /// The owner cannot be changed.
    pub(crate) fn give_to(&self, user: Option<&User>) -> io::Result<()> {
        match user {
            Some(user) => Ok(fchown(&self.outer, Some(Uid::from_raw(user.uid)), None)?),
            None => Ok(()),
        }
    }

    /// Removes both directories if they are empty; one with a mount stays.
    pub(crate) fn remove(&self) {
        let _removed = unlinkat(&self.outer, &self.name, AtFlags::REMOVEDIR)
            .and_then(|()| unlinkat(&self.temporary, &self.outer_name, AtFlags::REMOVEDIR));
    }
}

/// Creates a directory with an unguessable name.
fn make_in(temporary: &OwnedFd) -> io::Result<OsString> {
    for _ in 0..ATTEMPTS {
        let number = getrandom::u64().map_err(io::Error::other)?;
        let name = OsString::from(format!("acetate-{number:016x}"));
        match mkdirat(temporary, &name, Mode::RWXU) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Opens the new directory, and checks its owner and mode: another user may have replaced it.
fn open_ours(temporary: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let outer = openat(temporary, name, DIRECTORY, Mode::empty())?;
    let found = fstat(&outer)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    if found.st_uid != geteuid().as_raw() || mode != Mode::RWXU {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "another directory has replaced it",
        ));
    }
    Ok(outer)
}
