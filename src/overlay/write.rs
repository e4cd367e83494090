//! WRITE.

use crate::delta::{AuditProcedure, InodeRow};
use crate::vfs::{Attr, FileKind, FsError, Locator, Outcome, Wcc};

use super::access::Want;
use super::edit::{Edit, moved_on};
use super::error::Result;
use super::node::Node;
use super::setattr::clear_setid;

impl Edit<'_> {
    /// WRITE: all of `data` at byte `offset`.
    pub fn write(&mut self, object: &Locator, offset: u64, data: &[u8]) -> Outcome<(), Wcc> {
        self.on_object(object, |edit, node, before| edit.write_node(node, before, offset, data))
    }

    /// Returns the new row, or `None` if nothing changed.
    fn write_node(
        &mut self,
        node: Node,
        before: &Attr,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Box<InodeRow>>> {
        self.check_writable()?;
        if before.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        Want::WRITE.check_unless_owner(self.caller, before)?;
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
        self.check_file_size(before.size, end)?;
        self.check_unguarded(&node)?;
        if data.is_empty() {
            return Ok(None);
        }
        let mut row = self.copy_up_written(node, offset, data)?;
        row.ctime = moved_on(row.ctime, self.now);
        row.mtime = row.ctime;
        if !self.caller.is_root() {
            row.mode = clear_setid(row.mode);
        }
        self.txn.put_inode(&row)?;
        let path = self.path_of(&row)?;
        let span = (Some(offset), Some(data.len() as u64));
        self.record(AuditProcedure::Write, row.fileid(), path, None, span)?;
        Ok(Some(row))
    }
}
