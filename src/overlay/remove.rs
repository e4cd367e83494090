//! REMOVE and RMDIR: delete dentries; whiteouts hide base objects.

use crate::delta::{AuditProcedure, InodeRow};
use crate::vfs::{FileKind, FsError, Locator, Name, Outcome, Wcc};

use super::access::{Want, check_sticky};
use super::base_names::{adopt_base_name, detect_new_links};
use super::copy_up::ensure_dir;
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::node::{Child, DirPlace, Node, is_linked};
use super::readdir::has_entries;
use super::removed::note_removed;
use super::saving::require_saved;
use super::scope::check_unpinned;

/// REMOVE.
pub(super) fn remove(edit: &mut Edit<'_>, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
    edit.in_dir(dir, |edit, parent| {
        if edit.already_applied().is_some() {
            return Ok(());
        }
        let name = Name::new(name)?;
        let child = removable(edit, parent, &name)?;
        if child.node.is_dir() {
            return Err(FsError::IsDirectory.into());
        }
        let fileid = child.node.fileid();
        let parent_ino = ensure_dir(edit, &parent.place)?;
        unlink(edit, &parent.place, &name, child)?;
        edit.entries_changed(parent_ino, 0)?;
        let path = parent.place.merged.join(&name);
        edit.record(AuditProcedure::Remove, fileid, path, None, (None, None))
    })
}

/// RMDIR.
pub(super) fn rmdir(edit: &mut Edit<'_>, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
    edit.in_dir(dir, |edit, parent| {
        if edit.already_applied().is_some() {
            return Ok(());
        }
        let name = Name::new(name)?;
        let child = removable(edit, parent, &name)?;
        if !child.node.is_dir() {
            return Err(FsError::NotDirectory.into());
        }
        check_unpinned(edit, &child.node)?;
        let fileid = child.node.fileid();
        let parent_ino = ensure_dir(edit, &parent.place)?;
        unlink_dir(edit, &parent.place, &name, &child)?;
        edit.entries_changed(parent_ino, -1)?;
        let path = parent.place.merged.join(&name);
        edit.record(AuditProcedure::Rmdir, fileid, path, None, (None, None))
    })
}

/// The entry `name`, if the caller may remove it.
pub(super) fn removable(edit: &Edit<'_>, parent: &Parent, name: &Name) -> Result<Child> {
    edit.check_writable()?;
    Want::SEARCH.check(edit.caller, &parent.attr)?;
    let view = edit.view();
    let child = view.child(&parent.place, name)?.ok_or(FsError::NotFound)?;
    Want::CHANGE_ENTRIES.check(edit.caller, &parent.attr)?;
    check_sticky(edit.caller, &parent.attr, &view.attr(&child.node)?)?;
    Ok(child)
}

/// Removes one name of a non-directory, and the object with its last name.
pub(super) fn unlink(edit: &mut Edit<'_>, dir: &DirPlace, name: &Name, child: Child) -> Result<()> {
    let dentry_in = dir.ino.filter(|_| child.has_dentry);
    edit.drop_entry(dir, dentry_in, name)?;
    match child.node {
        Node::Base { path, attr } if is_linked(attr.kind, attr.nlink) => {
            note_removed(edit, &path, &attr);
            // The ctime of the remaining names: the later of the base's ctime and this removal.
            let (_, since) = edit.txn.hidden_links(attr.fileid)?;
            let since = moved_on(attr.ctime.max(since.unwrap_or(attr.ctime)), edit.now);
            Ok(edit.txn.hide_link(attr.fileid, since)?)
        }
        Node::Base { path, attr } => {
            note_removed(edit, &path, &attr);
            Ok(())
        }
        Node::Delta(row) => drop_link(edit, *row, child.has_dentry),
    }
}

/// Removes one name of a delta file: a dentry, or a hard link that only the base has.
fn drop_link(edit: &mut Edit<'_>, mut row: InodeRow, had_dentry: bool) -> Result<()> {
    let is_counted = detect_new_links(edit, &mut row)?;
    if had_dentry {
        row.nlink = row.nlink.saturating_sub(1);
    } else if let Some(origin) = row.origin.as_ref().filter(|_| !is_counted) {
        edit.txn.hide_link(origin.fileid, edit.now)?;
    }
    row.ctime = moved_on(row.ctime, edit.now);
    let orphaned = row.nlink == 0 && !adopt_base_name(edit, &mut row, &|_| true)?;
    if orphaned {
        require_saved(edit, &row, 0)?;
        return Ok(edit.txn.delete_inode(row.ino)?);
    }
    Ok(edit.txn.put_inode(&row)?)
}

/// Removes an empty directory and the whiteouts below it: the whiteout at its own path
/// suffices.
pub(super) fn unlink_dir(
    edit: &mut Edit<'_>,
    dir: &DirPlace,
    name: &Name,
    child: &Child,
) -> Result<()> {
    debug_assert_eq!(child.node.kind(), FileKind::Directory);
    let place = edit.view().place(&child.node)?;
    if has_entries(&edit.view(), &place)? {
        return Err(FsError::NotEmpty.into());
    }
    edit.txn.remove_whiteouts_below(&place.merged)?;
    edit.drop_entry(dir, dir.ino.filter(|_| child.has_dentry), name)?;
    if let Node::Delta(row) = &child.node {
        edit.txn.delete_inode(row.ino)?;
    }
    if let Some(base) = &place.base
        && let Some(attr) = edit.view().base_attr_at(base)?
    {
        note_removed(edit, base, &attr);
    }
    edit.touch_place(place.ino, place.base.clone());
    Ok(())
}
