//! WRITE.

use crate::delta::{AuditProcedure, InodeRow};
use crate::vfs::{Attr, FileKind, FsError, Locator, Outcome, Wcc};

use super::access::Want;
use super::copy_up::copy_up_written;
use super::edit::{Edit, moved_on};
use super::error::Result;
use super::guarded::check_unguarded;
use super::node::Node;
use super::setattr::{check_file_size, clear_setid};

/// WRITE: all of `data` at byte `offset`.
pub(super) fn write(
    edit: &mut Edit<'_>,
    object: &Locator,
    offset: u64,
    data: &[u8],
) -> Outcome<(), Wcc> {
    edit.on_object(object, |edit, node, before| write_node(edit, node, before, offset, data))
}

/// Returns the new row, or `None` if nothing changed.
fn write_node(
    edit: &mut Edit<'_>,
    node: Node,
    before: &Attr,
    offset: u64,
    data: &[u8],
) -> Result<Option<Box<InodeRow>>> {
    edit.check_writable()?;
    if before.kind != FileKind::Regular {
        return Err(FsError::Invalid.into());
    }
    Want::WRITE.check_unless_owner(edit.caller, before)?;
    let end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
    check_file_size(edit, before.size, end)?;
    check_unguarded(edit, &node)?;
    if data.is_empty() {
        return Ok(None);
    }
    let mut row = copy_up_written(edit, node, offset, data)?;
    row.ctime = moved_on(row.ctime, edit.now);
    row.mtime = row.ctime;
    if !edit.caller.is_root() {
        row.mode = clear_setid(row.mode);
    }
    edit.txn.put_inode(&row)?;
    let path = edit.path_of(&row)?;
    let span = (Some(offset), Some(data.len() as u64));
    edit.record(AuditProcedure::Write, row.fileid(), path, None, span)?;
    Ok(Some(row))
}
