//! Applies access ACLs of base objects to their mode bits, as far as mode bits can express denials.
//!
//! NFSv3 has no ACLs. If an object has an ACL, the group bits of its mode are the ACL's mask
//! (acl(5), "Correspondence between ACL entries and file permission bits") and not the permissions
//! of the owning group. A named user or group may also have fewer permissions than others. The
//! resulting bits grant no user what the host denies. Permissions that the host grants only to
//! named entries are not shown.
//!
//! Setting an ACL changes an object's ctime, so an ACL is read once per ctime. A base on a
//! filesystem without ACLs costs nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::listings::is_settled;
use super::walk::{Reached, Walker};
use crate::base::{BaseAttr, BasePath};
use crate::vfs::{FileId, FileKind, Time};

/// Capacity of the cache, about 40 bytes per object: what fits into a hash table of 131,072 slots.
/// A full cache is cleared.
const MAX_CACHED_ACLS: usize = 114_688;

/// Maximum size of an ACL, in bytes (XATTR_SIZE_MAX of Linux).
const MAX_ACL_BYTES: usize = 64 << 10;

/// Size of an ACL that fits into the small buffer, in bytes: 127 entries.
const SHORT_ACL_BYTES: usize = 1020;

/// Permission bits of group and others.
const SHARED_BITS: u32 = 0o077;

/// The extended attribute with the access ACL.
const ACCESS: &str = "system.posix_acl_access";

/// How to access an object to read its ACL.
#[derive(Debug, Clone, Copy)]
pub(super) enum AclSource<'a> {
    /// An entry of an open directory.
    Entry(BorrowedFd<'a>, &'a [u8]),
    /// An open descriptor of the object, O_PATH or for reading.
    Open(BorrowedFd<'a>),
    /// A path, which has to be walked.
    Path(&'a BasePath),
}

/// Cache of the ACLs of a base.
pub(super) struct Acls {
    /// Whether the base's filesystem can have ACLs.
    any: bool,
    /// By object: the ctime, and the mask of mode bits that its ACL leaves.
    known: Mutex<HashMap<FileId, (Time, u32)>>,
}

impl Acls {
    /// For the base of `walker`, which is on one filesystem.
    pub(super) fn of(walker: &Walker) -> Self {
        let any = match read_open(walker.root(), &mut [0; SHORT_ACL_BYTES]) {
            Err(Errno::OPNOTSUPP) => false,
            Err(Errno::NOENT) => {
                tracing::warn!("ACLs in the base are not seen: /proc is not mounted");
                false
            }
            _ => cfg!(target_os = "linux"),
        };
        Self { any, known: Mutex::default() }
    }

    /// `attr` without mode bits that the ACL of the object `at` this place denies.
    pub(super) fn limit(&self, walker: &Walker, at: AclSource<'_>, attr: BaseAttr) -> BaseAttr {
        self.limit_by(attr, |buffer| read(walker, at, buffer))
    }

    fn limit_by(
        &self,
        mut attr: BaseAttr,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> BaseAttr {
        // If only the owner has permissions, an ACL cannot deny more.
        if !self.any || attr.mode & SHARED_BITS == 0 || attr.kind == FileKind::Symlink {
            return attr;
        }
        let known = self.known.lock();
        let kept = known.get(&attr.fileid).filter(|(ctime, _)| *ctime == attr.ctime);
        let kept = kept.map(|(_, kept)| *kept);
        drop(known);
        attr.mode &= kept.unwrap_or_else(|| {
            let began = SystemTime::now();
            let (kept, is_sure) = bits_left(&mut read);
            if is_sure && is_settled(attr.ctime, began) {
                self.remember(attr.fileid, attr.ctime, kept);
            }
            kept
        });
        attr
    }

    fn remember(&self, id: FileId, ctime: Time, kept: u32) {
        let mut known = self.known.lock();
        if known.len() >= MAX_CACHED_ACLS && !known.contains_key(&id) {
            known.clear();
        }
        known.insert(id, (ctime, kept));
    }
}

/// The permission bits that a base shows for the entry `name` of `dir`, which has the mode `mode`
/// on the host and is no symbolic link.
pub fn shown_mode(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> u32 {
    if mode & SHARED_BITS == 0 {
        return mode;
    }
    mode & bits_left(&mut |buffer| read_entry(dir, name, buffer)).0
}

/// The mask of mode bits that the ACL returned by `read` leaves, and whether it is certain. An
/// unreadable ACL leaves only the owner's bits.
fn bits_left(read: &mut impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> (u32, bool) {
    let mut short = [0; SHORT_ACL_BYTES];
    let (length, long) = match read(&mut short) {
        Err(Errno::RANGE) => {
            let mut long = vec![0; MAX_ACL_BYTES];
            (read(&mut long), Some(long))
        }
        other => (other, None),
    };
    match length {
        Ok(length) => {
            let acl = long.as_deref().unwrap_or(&short).get(..length).unwrap_or_default();
            (bits_of(acl).unwrap_or(!SHARED_BITS), true)
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => (!0, true),
        // The object was removed after the `stat`.
        Err(Errno::NOENT | Errno::STALE) => (!0, false),
        Err(error) => {
            tracing::warn!(%error, "an ACL in the base cannot be read: only its owner has access");
            (!SHARED_BITS, false)
        }
    }
}

/// The mask of mode bits that an ACL leaves; `None` for an invalid ACL. The format is that of
/// `linux/posix_acl_xattr.h`: a version (4 bytes), then per entry a tag (2 bytes), permissions (2
/// bytes) and an id (4 bytes), all little-endian.
fn bits_of(acl: &[u8]) -> Option<u32> {
    const VERSION: [u8; 4] = [2, 0, 0, 0];
    const USER_OBJ: u8 = 0x01;
    const USER: u8 = 0x02;
    const GROUP_OBJ: u8 = 0x04;
    const GROUP: u8 = 0x08;
    const MASK: u8 = 0x10;
    const OTHER: u8 = 0x20;
    let entries = acl.strip_prefix(&VERSION)?;
    let (mut owning, mut users, mut groups, mut mask, mut others) = (7, 7, 7, 7, 7);
    for entry in entries.chunks(8) {
        let &[tag, 0, permissions @ 0..=7, 0, _, _, _, _] = entry else { return None };
        match tag {
            USER_OBJ => {}
            USER => users &= permissions,
            GROUP_OBJ => owning = permissions,
            GROUP => groups &= permissions,
            MASK => mask = permissions,
            OTHER => others = permissions,
            _ => return None,
        }
    }
    // A named user may be in the owning group. A user in several groups has the permissions of any
    // of them.
    let group = owning & users & mask;
    let has_named = entries.chunks(8).any(|entry| matches!(entry[0], USER | GROUP));
    let others = if has_named { others & users & groups & mask } else { others };
    Some(!SHARED_BITS | u32::from(group) << 3 | u32::from(others))
}

fn read(walker: &Walker, at: AclSource<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    match at {
        AclSource::Entry(dir, name) => read_entry(dir, name, buffer),
        AclSource::Open(fd) => read_open(fd, buffer),
        #[cfg(target_os = "linux")]
        AclSource::Path(path) => match walker.open_object(path)? {
            Reached::Object(fd) => read_open(fd.as_fd(), buffer),
            Reached::MountPoint => Err(Errno::NODATA),
        },
        #[cfg(not(target_os = "linux"))]
        AclSource::Path(_) => Err(Errno::OPNOTSUPP),
    }
}

/// Reads the ACL of an open object. `fgetxattr` does not accept an O_PATH descriptor; its path in
/// `/proc` refers to the same object.
#[cfg(target_os = "linux")]
fn read_open(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::getxattr(path, ACCESS, buffer)
}

/// Reads the ACL of an entry, which must not be a symbolic link.
#[cfg(target_os = "linux")]
fn read_entry(dir: BorrowedFd<'_>, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    rustix::fs::lgetxattr(path, ACCESS, buffer)
}

/// Other systems have other kinds of ACLs, which do not change the mode.
#[cfg(not(target_os = "linux"))]
fn read_open(_: BorrowedFd<'_>, _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

#[cfg(not(target_os = "linux"))]
fn read_entry(_: BorrowedFd<'_>, _: &[u8], _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash_fileid;
    use crate::vfs::Device;

    /// An ACL with these entries (tag, permissions); named entries get an id.
    fn acl(entries: &[(u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, permissions) in entries {
            let id = if matches!(tag, 2 | 8) { 1000_u32 } else { u32::MAX };
            bytes.extend([*tag, 0, *permissions, 0]);
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn bits_grant_nobody_what_an_entry_denies() {
        // Per case: the entries, the host's mode (its group bits are the mask), and the resulting
        // mode.
        for (entries, shown, left) in [
            // The owning group has no permissions; the mask is that of a named user.
            (&[(1, 6), (2, 6), (4, 0), (16, 6), (32, 0)][..], 0o660, 0o600),
            (&[(1, 6), (2, 6), (4, 4), (16, 6), (32, 4)], 0o664, 0o644),
            // A named user has no permissions, and may be in the owning group.
            (&[(1, 6), (2, 0), (4, 6), (16, 7), (32, 4)], 0o674, 0o600),
            // A named group has fewer permissions than others.
            (&[(1, 7), (4, 5), (8, 4), (16, 5), (32, 5)], 0o755, 0o754),
            // A user in two groups has the permissions of either.
            (&[(1, 7), (4, 5), (8, 0), (16, 5), (32, 5)], 0o755, 0o750),
            // The mask limits named entries.
            (&[(1, 7), (2, 7), (4, 7), (16, 4), (32, 5)], 0o745, 0o744),
            (&[(1, 7), (2, 7), (4, 7), (16, 0), (32, 5)], 0o705, 0o700),
            // Only the three classes.
            (&[(1, 6), (4, 4), (32, 4)], 0o644, 0o644),
        ] {
            let bits = bits_of(&acl(entries)).unwrap();
            assert_eq!(shown & bits, left, "{entries:?}");
            assert_eq!(0o7000 & bits, 0o7000);
        }
        for odd in [&b""[..], b"\x03\0\0\0", b"\x02\0\0\0\x01\0\x06", &acl(&[(3, 6)])] {
            assert_eq!(bits_of(odd), None, "{odd:?}");
        }
    }

    fn attr(mode: u32, ctime: Time) -> BaseAttr {
        BaseAttr {
            kind: FileKind::Regular,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: Device::default(),
            dev: 1,
            ino: 7,
            fileid: hash_fileid(1, 1, 7),
            atime: ctime,
            mtime: ctime,
            ctime,
        }
    }

    fn acls() -> Acls {
        Acls { any: true, known: Mutex::default() }
    }

    #[test]
    fn an_object_is_asked_once_for_each_of_its_states() {
        let (acls, asked) = (acls(), std::cell::Cell::new(0));
        let shown = |mode, secs| {
            let attr = attr(mode, Time { secs, nanos: 1 });
            acls.limit_by(attr, |_| {
                asked.set(asked.get() + 1);
                Err(Errno::NODATA)
            })
        };
        for _ in 0..10 {
            assert_eq!(shown(0o664, 5).mode, 0o664);
        }
        assert_eq!(asked.get(), 1);
        shown(0o664, 6);
        assert_eq!(asked.get(), 2, "its ctime moved");
        shown(0o4700, 7);
        assert_eq!(asked.get(), 2, "only the owner has access");
    }

    #[test]
    fn what_changed_just_now_and_what_cannot_be_read_is_asked_again() {
        let acls = acls();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = Time { secs: now.as_secs() as i64, nanos: now.subsec_nanos().max(1) };
        let (mut first, mut second) = (0, 0);
        for _ in 0..2 {
            acls.limit_by(attr(0o644, now), |_| {
                first += 1;
                Err(Errno::NODATA)
            });
            let left = acls.limit_by(attr(0o4754, Time { secs: 5, nanos: 1 }), |_| {
                second += 1;
                Err(Errno::IO)
            });
            assert_eq!(left.mode, 0o4700);
        }
        assert_eq!((first, second), (2, 2));
    }

    #[test]
    fn it_remembers_no_more_than_it_may() {
        let acls = acls();
        for id in 0..2 * MAX_CACHED_ACLS as u64 {
            acls.remember(FileId(id), Time::default(), !0);
        }
        assert!(acls.known.lock().len() <= MAX_CACHED_ACLS);
    }
}
