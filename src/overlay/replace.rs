//! Atomic replacement of a file's content, for commands: readers see the old content or the new
//! one. On an error, such as a full session, the old content stays.

use bytes::Bytes;

use crate::delta::{AuditProcedure, InodeRow};
use crate::vfs::{Attr, Caller, FsError, Locator, Outcome, SetAttr, Time, Wcc};
use crate::worker::Cost;

use super::Overlay;
use super::copy_up::copy_up_head;
use super::copy_up_pending::{resize_content, write_content};
use super::edit::Edit;
use super::error::Result;
use super::guarded::check_unguarded;
use super::node::Node;
use super::setattr::{check, check_file_size, set_attributes, stored};

/// Replaces the content of a file and sets attributes. With `guard`, only if the file has that
/// ctime; otherwise [`FsError::NotSync`].
fn replace(
    edit: &mut Edit<'_>,
    file: &Locator,
    content: &[u8],
    set: &SetAttr,
    guard: Option<Time>,
) -> Outcome<(), Wcc> {
    edit.on_object(file, |edit, node, before| {
        if guard.is_some_and(|guard| guard != before.ctime) {
            return Err(FsError::NotSync.into());
        }
        Ok(Some(replace_node(edit, node, before, content, set)?))
    })
}

pub(super) fn replace_node(
    edit: &mut Edit<'_>,
    node: Node,
    before: &Attr,
    content: &[u8],
    set: &SetAttr,
) -> Result<Box<InodeRow>> {
    edit.check_writable()?;
    // Truncate and write in one transaction.
    let set = SetAttr { size: Some(0), ..*set };
    check(edit.caller, before, &set)?;
    check_file_size(edit, before.size, content.len() as u64)?;
    check_unguarded(edit, &node)?;
    let mut row = copy_up_head(edit, node, 0)?;
    resize_content(edit, &mut row, 0)?;
    set_attributes(edit, &mut row, &set);
    if !content.is_empty() {
        write_content(edit, &mut row, 0, content)?;
    }
    row.create_verifier = None;
    edit.txn.put_inode(&row)?;
    let path = edit.path_of(&row)?;
    let id = row.fileid();
    let attrs = stored(&row, &set);
    edit.record_set(AuditProcedure::Setattr, id, path.clone(), Some(0), attrs)?;
    if !content.is_empty() {
        let span = (Some(0), Some(content.len() as u64));
        edit.record(AuditProcedure::Write, id, path, None, span)?;
    }
    Ok(row)
}

impl Overlay {
    /// Replaces a file's content and sets attributes, in one transaction. The audit log records a
    /// SETATTR of the size and a WRITE.
    pub async fn replace(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        set: SetAttr,
    ) -> Outcome<(), Wcc> {
        self.replace_if(caller, file, content, set, None).await
    }

    /// As [`Self::replace`], if the file has the ctime `guard`; otherwise [`FsError::NotSync`].
    pub async fn replace_if(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        let (at, bytes) = (file.clone(), content.len());
        let replaced = self.change(caller, Cost::Offload, bytes, false, move |edit| {
            replace(edit, &at, &content, &set, guard)
        });
        replaced.await.map_or_else(|error: FsError| error.into(), |committed| committed.value)
    }
}
