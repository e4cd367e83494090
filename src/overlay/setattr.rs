//! SETATTR: modes, owners, sizes and times, with the checks of a Linux server.

use crate::delta::{AuditProcedure, AuditSet, InodeRow};
use crate::vfs::{Attr, Caller, FileKind, FsError, Locator, Outcome, SetAttr, SetTime, Time, Wcc};

use super::access::Want;
use super::copy_up::copy_up_head;
use super::copy_up_pending::resize_content;
use super::edit::{Edit, moved_on};
use super::error::Result;
use super::guarded::check_unguarded;
use super::node::Node;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// Without this bit, setgid grants nothing (it marks mandatory locking), and is not cleared.
const GROUP_EXECUTE: u32 = 0o0010;

/// The mode after a change of owner or content: without setuid, and without an effective setgid.
pub(super) fn clear_setid(mode: u32) -> u32 {
    if mode & GROUP_EXECUTE != 0 { mode & !(SETUID | SETGID) } else { mode & !SETUID }
}

/// SETATTR (RFC 1813 section 3.3.2). `guard` is the ctime that the object must have.
pub(super) fn setattr(
    edit: &mut Edit<'_>,
    object: &Locator,
    set: &SetAttr,
    guard: Option<Time>,
) -> Outcome<(), Wcc> {
    edit.on_object(object, |edit, node, before| setattr_node(edit, node, before, set, guard))
}

/// Returns the new row, or `None` if nothing changed.
fn setattr_node(
    edit: &mut Edit<'_>,
    node: Node,
    before: &Attr,
    set: &SetAttr,
    guard: Option<Time>,
) -> Result<Option<Box<InodeRow>>> {
    edit.check_writable()?;
    if edit.already_applied().is_some() {
        return Ok(None);
    }
    if guard.is_some_and(|guard| guard != before.ctime.as_clients_see_it()) {
        return Err(FsError::NotSync.into());
    }
    if *set == SetAttr::default() {
        return Ok(None);
    }
    check(edit.caller, before, set)?;
    if let Some(size) = set.size {
        check_file_size(edit, before.size, size)?;
    }
    if set.size.is_some() {
        check_unguarded(edit, &node)?;
    }
    let mut row = copy_up_head(edit, node, set.size.unwrap_or(u64::MAX))?;
    // The new times must be later than those that clients saw, which may be a base directory's.
    (row.mtime, row.ctime) = (row.mtime.max(before.mtime), row.ctime.max(before.ctime));
    if let Some(size) = set.size {
        resize_content(edit, &mut row, size)?;
    }
    set_attributes(edit, &mut row, set);
    // The client sets attributes only after its exclusive CREATE succeeded.
    row.create_verifier = None;
    edit.txn.put_inode(&row)?;
    let path = edit.path_of(&row)?;
    let attrs = stored(&row, set);
    edit.record_set(AuditProcedure::Setattr, row.fileid(), path, set.size, attrs)?;
    Ok(Some(row))
}

/// [`FsError::TooLarge`] if a file would grow from `before` to `size` bytes beyond the limit. A
/// file that does not grow may be larger: a limit can be lowered, and base files have none.
pub(super) fn check_file_size(edit: &Edit<'_>, before: u64, size: u64) -> Result<()> {
    if size > before && size > edit.core.quota.file_bytes(edit.scope.file_bytes) {
        return Err(FsError::TooLarge.into());
    }
    Ok(())
}

/// Applies checked attributes to a row, except the size, which the caller has set.
pub(super) fn set_attributes(edit: &Edit<'_>, row: &mut InodeRow, set: &SetAttr) {
    row.ctime = moved_on(row.ctime, edit.now);
    if set.size.is_some() {
        row.mtime = row.ctime;
        if !edit.caller.is_root() {
            row.mode = clear_setid(row.mode);
        }
    }
    let chown = set.uid.is_some() || set.gid.is_some();
    if chown && row.kind != FileKind::Directory {
        row.mode = clear_setid(row.mode);
    }
    row.uid = set.uid.unwrap_or(row.uid);
    row.gid = set.gid.unwrap_or(row.gid);
    if let Some(mode) = set.mode {
        row.mode = allowed_mode(edit.caller, mode, row.gid);
    }
    if set.atime != SetTime::Keep {
        edit.core.atimes.forget(row.ino);
    }
    row.atime = chosen(set.atime, row.atime, edit.now);
    row.mtime = chosen(set.mtime, row.mtime, edit.now);
}

/// The attributes of `row` that `set` changed, for the audit log.
pub(super) fn stored(row: &InodeRow, set: &SetAttr) -> AuditSet {
    AuditSet {
        mode: set.mode.map(|_| row.mode),
        uid: set.uid.map(|_| row.uid),
        gid: set.gid.map(|_| row.gid),
        atime: (set.atime != SetTime::Keep).then_some(row.atime),
        mtime: (set.mtime != SetTime::Keep).then_some(row.mtime),
    }
}

/// The mode that a caller may give to an object of group `gid`: setgid only for a member.
pub(super) fn allowed_mode(caller: &Caller, mode: u32, gid: u32) -> u32 {
    let mode = mode & 0o7777;
    if caller.is_root() || caller.in_group(gid) { mode } else { mode & !SETGID }
}

/// The new time; `old` if the request keeps it.
pub(super) fn chosen(set: SetTime, old: Time, now: Time) -> Time {
    match set {
        SetTime::Keep => old,
        SetTime::ServerNow => now,
        SetTime::To(time) => time,
    }
}

/// Whether the caller may set these attributes (chown(2), chmod(2), utimensat(2), truncate(2)).
pub(super) fn check(caller: &Caller, before: &Attr, set: &SetAttr) -> Result<()> {
    let owner = caller.is_root() || caller.uid == before.uid;
    if set.size.is_some() {
        if before.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        Want::WRITE.check_unless_owner(caller, before)?;
    }
    let takes_over = set.uid.is_some_and(|uid| uid != before.uid) && !caller.is_root();
    let foreign_group =
        set.gid.is_some_and(|gid| gid != before.gid && !caller.is_root() && !caller.in_group(gid));
    let owners_business = set.mode.is_some()
        || set.uid.is_some()
        || set.gid.is_some()
        || matches!(set.atime, SetTime::To(_))
        || matches!(set.mtime, SetTime::To(_));
    if takes_over || foreign_group || (owners_business && !owner) {
        return Err(FsError::NotPermitted.into());
    }
    let touches = set.atime == SetTime::ServerNow || set.mtime == SetTime::ServerNow;
    if touches && !owner {
        Want::WRITE.check(caller, before)?;
    }
    Ok(())
}
