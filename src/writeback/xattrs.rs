//! Extended attributes and ACLs, which are carried over from a replaced file to its replacement.
//!
//! They are read and set through `/proc/self/fd`, so that no symbolic link is followed. The value
//! of a `user.` attribute can be read only with permission to read the content (xattr(7)).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;

/// The access ACL of an object (acl(5)). If there is one, the group bits of the mode are its mask,
/// and not the permissions of the owning group.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// The default ACL, which new entries of a directory inherit.
#[cfg(target_os = "linux")]
pub(super) const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Attributes bound to the content: file capabilities, which the kernel removes when a file is
/// written, and signatures.
const OF_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// Prefixes of the attributes that are carried over.
#[cfg(target_os = "linux")]
const CARRIED: [&[u8]; 5] =
    [b"user.", b"security.", b"trusted.", b"system.posix_acl_", b"system.nfs4_acl"];

/// The version of the ACL format, and the tag of the owning group's entry.
const ACL_VERSION: u32 = 2;
const ACL_GROUP_OBJ: u16 = 0x04;

/// Extended attributes of an object: names, and the values that we may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xattrs(Vec<(CString, Option<Vec<u8>>)>);

impl Xattrs {
    /// Whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, as text.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| shown(name)).collect()
    }

    /// The first name, as text, whose value we may not read.
    pub fn unreadable(&self) -> Option<String> {
        self.0.iter().find(|(_, value)| value.is_none()).map(|(name, _)| shown(name))
    }

    /// Removes the attributes that are bound to the content or that we may not set; returns their
    /// names.
    pub fn take_bound(&mut self) -> Vec<String> {
        let is_root = rustix::process::geteuid().is_root();
        let is_bound = |name: &[u8]| {
            // An owner may set the SELinux label, if the policy permits that.
            let is_roots = name.starts_with(b"security.") && name != b"security.selinux";
            OF_CONTENT.contains(&name) || (is_roots && !is_root)
        };
        let (bound, free) =
            std::mem::take(&mut self.0).into_iter().partition(|(n, _)| is_bound(n.to_bytes()));
        self.0 = free;
        Self(bound).names()
    }

    /// Copies the access ACL of another object, if there is none here.
    pub fn adopt_access_acl(&mut self, other: &Self) {
        if self.access_acl().is_none() {
            self.0.extend(other.0.iter().find(|(name, _)| name.to_bytes() == ACCESS_ACL).cloned());
        }
    }

    fn access_acl(&self) -> Option<&[u8]> {
        let found = self.0.iter().find(|(name, _)| name.to_bytes() == ACCESS_ACL);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// The permission bits for an object that cannot get the access ACL: the group gets only what
    /// both its ACL entry and the mask allow.
    pub(super) fn without_acl(&self, mode: u32) -> u32 {
        match self.access_acl() {
            Some(acl) => mode & (!0o070 | (group_bits(acl).unwrap_or(0) << 3)),
            None => mode,
        }
    }
}

/// The permissions in the owning group's entry of an ACL (3 bits), without the mask applied.
fn group_bits(acl: &[u8]) -> Option<u32> {
    let (version, entries) = acl.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != ACL_VERSION {
        return None;
    }
    let mut entries = entries.chunks_exact(8);
    let entry = entries.find(|e| u16::from_le_bytes([e[0], e[1]]) == ACL_GROUP_OBJ)?;
    Some(u32::from(u16::from_le_bytes([entry[2], entry[3]]) & 0o7))
}

fn shown(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Reads the attributes of the entry `name` of `dir` that can be carried over.
#[cfg(target_os = "linux")]
pub(super) fn read(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Xattrs> {
    use rustix::io::Errno;
    let path = by_descriptor(dir, name);
    let names = match filled(|buffer| rustix::fs::llistxattr(&*path, buffer)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Xattrs::default()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0) {
        if !CARRIED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let name = CString::new(name).unwrap_or_default();
        match filled(|buffer| rustix::fs::lgetxattr(&*path, &*name, buffer)) {
            Ok(value) => found.push((name, Some(value))),
            Err(Errno::ACCESS) => found.push((name, None)),
            // It was removed after the list was read.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Xattrs(found))
}

/// The bytes that `fill` writes; tries a small buffer first.
#[cfg(target_os = "linux")]
fn filled(
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, rustix::io::Errno>,
) -> Result<Vec<u8>, rustix::io::Errno> {
    /// Maximum size of the list of names and of a value, in bytes (xattr(7)).
    const MAX_BYTES: usize = 64 << 10;
    let mut short = [0; 512];
    match fill(&mut short) {
        Err(rustix::io::Errno::RANGE) => {}
        length => return Ok(short[..length?].to_vec()),
    }
    let mut long = vec![0; MAX_BYTES];
    let length = fill(&mut long)?;
    long.truncate(length);
    Ok(long)
}

/// Sets the attributes; returns the names of those that the host refuses.
#[cfg(target_os = "linux")]
pub(super) fn write(dir: BorrowedFd<'_>, name: &[u8], xattrs: &Xattrs) -> Vec<CString> {
    let path = by_descriptor(dir, name);
    let set = |(name, value): &(CString, Option<Vec<u8>>)| {
        let flags = rustix::fs::XattrFlags::empty();
        let set = |value: &Vec<u8>| rustix::fs::lsetxattr(&*path, &**name, value, flags).is_ok();
        (!value.as_ref().is_some_and(set)).then(|| name.clone())
    };
    xattrs.0.iter().filter_map(set).collect()
}

/// A path of an entry of an open directory; only the last component is looked up by name.
#[cfg(target_os = "linux")]
fn by_descriptor(dir: BorrowedFd<'_>, name: &[u8]) -> CString {
    use std::os::fd::AsRawFd;
    let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
    // A name in a directory contains no NUL.
    CString::new(path).unwrap_or_default()
}

/// Not supported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn read(_: BorrowedFd<'_>, _: &[u8]) -> io::Result<Xattrs> {
    Ok(Xattrs::default())
}

/// Not supported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn write(_: BorrowedFd<'_>, _: &[u8], xattrs: &Xattrs) -> Vec<CString> {
    xattrs.0.iter().map(|(name, _)| name.clone()).collect()
}

/// Whether the access ACL is among these names.
pub(super) fn has_access_acl(names: &[CString]) -> bool {
    names.iter().any(|name| name.to_bytes() == ACCESS_ACL)
}
