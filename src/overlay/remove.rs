//! REMOVE and RMDIR: delete dentries; whiteouts hide base objects.

use crate::delta::{AuditProcedure, InodeRow};
use crate::vfs::{FileKind, FsError, Locator, Name, Outcome, Wcc};

use super::access::{Want, check_sticky};
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::node::{Child, DirPlace, Node, is_linked};

impl Edit<'_> {
    /// REMOVE.
    pub fn remove(&mut self, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.in_dir(dir, |edit, parent| {
            if edit.already_applied().is_some() {
                return Ok(());
            }
            let name = Name::new(name)?;
            let child = edit.removable(parent, &name)?;
            if child.node.is_dir() {
                return Err(FsError::IsDirectory.into());
            }
            let fileid = child.node.fileid();
            let parent_ino = edit.ensure_dir(&parent.place)?;
            edit.unlink(&parent.place, &name, child)?;
            edit.entries_changed(parent_ino, 0)?;
            let path = parent.place.merged.join(&name);
            edit.record(AuditProcedure::Remove, fileid, path, None, (None, None))
        })
    }

    /// RMDIR.
    pub fn rmdir(&mut self, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.in_dir(dir, |edit, parent| {
            if edit.already_applied().is_some() {
                return Ok(());
            }
            let name = Name::new(name)?;
            let child = edit.removable(parent, &name)?;
            if !child.node.is_dir() {
                return Err(FsError::NotDirectory.into());
            }
            edit.check_unpinned(&child.node)?;
            let fileid = child.node.fileid();
            let parent_ino = edit.ensure_dir(&parent.place)?;
            edit.unlink_dir(&parent.place, &name, &child)?;
            edit.entries_changed(parent_ino, -1)?;
            let path = parent.place.merged.join(&name);
            edit.record(AuditProcedure::Rmdir, fileid, path, None, (None, None))
        })
    }

    /// The entry `name`, if the caller may remove it.
    pub fn removable(&self, parent: &Parent, name: &Name) -> Result<Child> {
        self.check_writable()?;
        Want::SEARCH.check(self.caller, &parent.attr)?;
        let view = self.view();
        let child = view.child(&parent.place, name)?.ok_or(FsError::NotFound)?;
        Want::CHANGE_ENTRIES.check(self.caller, &parent.attr)?;
        check_sticky(self.caller, &parent.attr, &view.attr(&child.node)?)?;
        Ok(child)
    }

    /// Removes one name of a non-directory, and the object with its last name.
    pub fn unlink(&mut self, dir: &DirPlace, name: &Name, child: Child) -> Result<()> {
        let dentry_in = dir.ino.filter(|_| child.has_dentry);
        self.drop_entry(dir, dentry_in, name)?;
        match child.node {
            Node::Base { path, attr } if is_linked(attr.kind, attr.nlink) => {
                self.note_removed(&path, &attr);
                // The ctime of the remaining names: the later of the base's ctime and this removal.
                let (_, since) = self.txn.hidden_links(attr.fileid)?;
                let since = moved_on(attr.ctime.max(since.unwrap_or(attr.ctime)), self.now);
                Ok(self.txn.hide_link(attr.fileid, since)?)
            }
            Node::Base { path, attr } => {
                self.note_removed(&path, &attr);
                Ok(())
            }
            Node::Delta(row) => self.drop_link(*row, child.has_dentry),
        }
    }

    /// Removes one name of a delta file: a dentry, or a hard link that only the base has.
    fn drop_link(&mut self, mut row: InodeRow, had_dentry: bool) -> Result<()> {
        let is_counted = self.detect_new_links(&mut row)?;
        if had_dentry {
            row.nlink = row.nlink.saturating_sub(1);
        } else if let Some(origin) = row.origin.as_ref().filter(|_| !is_counted) {
            self.txn.hide_link(origin.fileid, self.now)?;
        }
        row.ctime = moved_on(row.ctime, self.now);
        let orphaned = row.nlink == 0 && !self.adopt_base_name(&mut row, &|_| true)?;
        if orphaned {
            return Ok(self.txn.delete_inode(row.ino)?);
        }
        Ok(self.txn.put_inode(&row)?)
    }

    /// Removes an empty directory and the whiteouts below it: the whiteout at its own path
    /// suffices.
    pub fn unlink_dir(&mut self, dir: &DirPlace, name: &Name, child: &Child) -> Result<()> {
        debug_assert_eq!(child.node.kind(), FileKind::Directory);
        let place = self.view().place(&child.node)?;
        if self.view().has_entries(&place)? {
            return Err(FsError::NotEmpty.into());
        }
        self.txn.remove_whiteouts_below(&place.merged)?;
        self.drop_entry(dir, dir.ino.filter(|_| child.has_dentry), name)?;
        if let Node::Delta(row) = &child.node {
            self.txn.delete_inode(row.ino)?;
        }
        if let Some(base) = &place.base
            && let Some(attr) = self.view().base_attr_at(base)?
        {
            self.note_removed(base, &attr);
        }
        self.touch_place(place.ino, place.base.clone());
        Ok(())
    }
}
