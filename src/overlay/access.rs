//! Permission checks by mode bits, as a Linux NFS server makes them.

use crate::vfs::{Access, Attr, Caller, FileKind, FsError, Locator, Outcome};

use super::error::Result;
use super::resolve::View;

/// Permissions that an operation needs, as the bits of one `rwx` group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want(u32);

impl Want {
    /// Read a file's content, list a directory.
    pub const READ: Self = Self(0o4);
    /// Change a file's content.
    pub const WRITE: Self = Self(0o2);
    /// Execute a file, look up a name in a directory.
    pub const SEARCH: Self = Self(0o1);
    /// Change a directory's entries.
    pub const CHANGE_ENTRIES: Self = Self(0o3);

    /// Whether the mode bits grant all of these permissions. Root is refused only execution of a
    /// file without any x bit.
    pub fn granted(self, caller: &Caller, attr: &Attr) -> bool {
        if caller.is_root() {
            let runs = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
            return self.0 & 0o1 == 0 || runs;
        }
        let shift = if caller.uid == attr.uid {
            6
        } else if caller.in_group(attr.gid) {
            3
        } else {
            0
        };
        (attr.mode >> shift) & self.0 == self.0
    }

    /// [`FsError::Access`] unless granted.
    pub fn check(self, caller: &Caller, attr: &Attr) -> Result<()> {
        if self.granted(caller, attr) { Ok(()) } else { Err(FsError::Access.into()) }
    }

    /// As [`Self::check`], but the owner always passes. Clients check at open, and the owner may
    /// keep using an open file whose mode changed since (RFC 1813 §4.4).
    pub fn check_unless_owner(self, caller: &Caller, attr: &Attr) -> Result<()> {
        if caller.uid == attr.uid { Ok(()) } else { self.check(caller, attr) }
    }
}

/// [`FsError::NotPermitted`] unless the caller may remove or rename an entry of a sticky directory.
pub(super) fn check_sticky(caller: &Caller, dir: &Attr, entry: &Attr) -> Result<()> {
    let sticky = dir.mode & 0o1000 != 0;
    let owner = caller.uid == dir.uid || caller.uid == entry.uid;
    if sticky && !owner && !caller.is_root() {
        return Err(FsError::NotPermitted.into());
    }
    Ok(())
}

/// Permission for each ACCESS bit (RFC 1813 §3.3.4): for a directory, and for other objects.
const BITS: [(u32, Option<Want>, Option<Want>); 6] = [
    (Access::READ, Some(Want::READ), Some(Want::READ)),
    (Access::LOOKUP, Some(Want::SEARCH), None),
    (Access::MODIFY, Some(Want::CHANGE_ENTRIES), Some(Want::WRITE)),
    (Access::EXTEND, Some(Want::CHANGE_ENTRIES), Some(Want::WRITE)),
    (Access::DELETE, Some(Want::CHANGE_ENTRIES), None),
    (Access::EXECUTE, None, Some(Want::SEARCH)),
];

/// ACCESS bits that a read-only export never grants.
const CHANGES: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE;

/// ACCESS.
pub(super) fn access(
    view: &View<'_>,
    caller: &Caller,
    object: &Locator,
    want: Access,
) -> Outcome<Access, Option<Attr>> {
    let attr = match view.node(object).and_then(|node| view.attr(&node)) {
        Ok(attr) => attr,
        Err(error) => return error.into_fs().into(),
    };
    let mut granted = 0;
    for (bit, dir, other) in BITS {
        let needed = if attr.kind == FileKind::Directory { dir } else { other };
        if want.0 & bit != 0 && needed.is_some_and(|needed| needed.granted(caller, &attr)) {
            granted |= bit;
        }
    }
    if view.core.is_read_only() || view.scope.read_only {
        granted &= !CHANGES;
    }
    Outcome::ok(Access(granted), Some(attr))
}
