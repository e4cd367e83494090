//! Access ACLs of the base's objects, as far as mode bits can say what they deny.
//!
//! NFSv3 has no ACLs. Where an object has one, the group bits of its mode are the ACL's mask
//! (acl(5), "Correspondence between ACL entries and file permission bits") and not what the
//! owning group may do; and a named user or group may have less than others have. The bits that
//! are shown grant no user what the host denies. What the host grants by named entries alone is
//! not shown.
//!
//! Setting an ACL moves an object's ctime, so an ACL is read once for each ctime. A base on a
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

/// Objects whose ACL is remembered, about 40 bytes each: what fits before a table of 131,072
/// places grows. A full table is emptied.
const MAX_CACHED_ACLS: usize = 114_688;

/// The longest ACL that is read, in bytes (XATTR_SIZE_MAX of Linux).
const MAX_ACL_BYTES: usize = 64 << 10;

/// The ACL that is read without a buffer of the longest size, in bytes: 127 entries.
const SHORT_ACL_BYTES: usize = 1020;

/// Permission bits of the group and of others.
const SHARED_BITS: u32 = 0o077;

/// The attribute that holds an access ACL.
const ACCESS: &str = "system.posix_acl_access";

/// Where an object is, to read its ACL.
#[derive(Debug, Clone, Copy)]
pub(super) enum AclSource<'a> {
    /// An entry of an open directory.
    Entry(BorrowedFd<'a>, &'a [u8]),
    /// It is open, as a place to look from or for reading.
    Open(BorrowedFd<'a>),
    /// It has to be walked to.
    Path(&'a BasePath),
}

/// What is known of the ACLs of a base.
pub(super) struct Acls {
    /// Whether the base can have any.
    any: bool,
    /// The mode bits that an object's ACL leaves, as of its ctime.
    known: Mutex<HashMap<FileId, (Time, u32)>>,
}

impl Acls {
    /// Those of the base that `walker` walks, which is on one filesystem.
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

    /// `attr` with the mode bits that the ACL of the object, which is `at` this place, leaves.
    pub(super) fn limit(&self, walker: &Walker, at: AclSource<'_>, attr: BaseAttr) -> BaseAttr {
        self.limit_by(attr, |buffer| read(walker, at, buffer))
    }

    fn limit_by(
        &self,
        mut attr: BaseAttr,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> BaseAttr {
        // What only the owner may use is denied to all others, whatever an ACL says.
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

/// The permission bits that a base shows of the entry `name` of `dir`, which the host gives `mode`
/// and which is no symbolic link.
pub fn shown_mode(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> u32 {
    if mode & SHARED_BITS == 0 {
        return mode;
    }
    mode & bits_left(&mut |buffer| read_entry(dir, name, buffer)).0
}

/// The mode bits that the ACL which `read` reads leaves, and whether that is sure. An ACL that
/// cannot be read leaves the owner's.
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
        // The object was removed since the stat.
        Err(Errno::NOENT | Errno::STALE) => (!0, false),
        Err(error) => {
            tracing::warn!(%error, "an ACL in the base cannot be read: only its owner has access");
            (!SHARED_BITS, false)
        }
    }
}

/// The mode bits that an ACL leaves; `None` for one that makes no sense. Its form is that of
/// `linux/posix_acl_xattr.h`: a version of 4 bytes, then a tag of 2, permissions of 2 and an id of
/// 4 bytes for each entry, all little-endian.
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
    // A named user may be in the owning group; one in several groups has what any of them has.
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

/// Reads the ACL of an open object. `fgetxattr` takes no descriptor of `O_PATH`; its name in
/// `/proc` leads to the object itself.
#[cfg(target_os = "linux")]
fn read_open(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::getxattr(path, ACCESS, buffer)
}

/// Reads the ACL of an entry, which is no symbolic link.
#[cfg(target_os = "linux")]
fn read_entry(dir: BorrowedFd<'_>, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    rustix::fs::lgetxattr(path, ACCESS, buffer)
}

/// Other systems have ACLs of other kinds, which say nothing of the mode.
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
    use crate::base::fold_fileid;
    use crate::vfs::Device;

    /// An ACL of these entries (tag, permissions), with ids where they have one.
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
        // Each with the mode that the host shows, which has the mask, and the one that is left.
        for (entries, shown, left) in [
            // The group is shut out: the mask is a named user's.
            (&[(1, 6), (2, 6), (4, 0), (16, 6), (32, 0)][..], 0o660, 0o600),
            (&[(1, 6), (2, 6), (4, 4), (16, 6), (32, 4)], 0o664, 0o644),
            // A named user is shut out, of the group or not.
            (&[(1, 6), (2, 0), (4, 6), (16, 7), (32, 4)], 0o674, 0o600),
            // A named group has less than others.
            (&[(1, 7), (4, 5), (8, 4), (16, 5), (32, 5)], 0o755, 0o754),
            // Those of two groups have what either has.
            (&[(1, 7), (4, 5), (8, 0), (16, 5), (32, 5)], 0o755, 0o750),
            // The mask limits named entries.
            (&[(1, 7), (2, 7), (4, 7), (16, 4), (32, 5)], 0o745, 0o744),
            (&[(1, 7), (2, 7), (4, 7), (16, 0), (32, 5)], 0o705, 0o700),
            // Nothing but the three classes.
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
            fileid: fold_fileid(1, 1, 7),
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
