//! Removes copies without a change, so that the base shows there again.
//!
//! Such a copy hides later changes of the base. It remains after changes that were reverted, and
//! after an apply of other hard links of its file.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{AuditProcedure, Ino, MergedPath};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Time};

use super::discard::{record_given_up, update_changed_dirs};
use super::tree::visible_dir;
use crate::overlay::Overlay;
use crate::overlay::base_names::count_hidden_links;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::followed::settle;
use crate::overlay::moved_out::{hide_lost_moved_out, may_show_again};
use crate::overlay::original::forget_originals;

/// A session's file or symbolic link without a change, or a copied-up directory that the base no
/// longer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedCopy {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Number and ctime: an object with others stays. Of a directory, only the number counts.
    pub object: (FileId, Time),
    /// The base's object, if it has the same change as the copy: the copy stays if the base's
    /// object is another one at the drop. `None` if the copy is as its original.
    pub base: Option<BaseVersion>,
}

/// A state of a base object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseVersion {
    /// Its number.
    pub fileid: FileId,
    /// Its size, in bytes.
    pub size: u64,
    /// When its content changed last.
    pub mtime: Time,
    /// When its content or attributes changed last. `None` if it has several hard links: a change
    /// of another name sets the ctime too.
    pub ctime: Option<Time>,
}

impl BaseVersion {
    /// The state with these attributes.
    pub fn of(attr: &BaseAttr) -> Self {
        let ctime = (attr.nlink < 2).then_some(attr.ctime);
        Self { fileid: attr.fileid, size: attr.size, mtime: attr.mtime, ctime }
    }

    fn is_same_as(&self, now: &Self) -> bool {
        let are_apart = self.ctime.zip(now.ctime).is_some_and(|(then, now)| then != now);
        (self.fileid, self.size, self.mtime) == (now.fileid, now.size, now.mtime) && !are_apart
    }
}

/// An entry of the session.
struct SessionEntry {
    parent: Ino,
    name: Name,
    path: MergedPath,
    /// The entry's path in the base.
    base: BasePath,
}

impl Overlay {
    /// Removes these copies from the session, and the moves of all directories that the base moved
    /// too. A file with several entries stays unless all of them are given, each at its base path.
    /// A directory stays with entries, and with whiteouts that stay for when the base has it again.
    /// It is one change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    pub async fn drop_unchanged(
        &self,
        caller: &Caller,
        copies: Vec<UnchangedCopy>,
    ) -> std::result::Result<(), FsError> {
        self.core.base.invalidate();
        self.change_unlimited(caller, move |edit| drop_copies(edit, &copies)).await
    }

    /// Removes the moves of all directories that the base moved too. It is one change, synced
    /// before this returns.
    ///
    /// # Errors
    /// As [`Self::drop_unchanged`].
    pub async fn settle_moves(&self, caller: &Caller) -> std::result::Result<(), FsError> {
        self.drop_unchanged(caller, Vec::new()).await
    }
}

fn drop_copies(edit: &mut Edit<'_>, copies: &[UnchangedCopy]) -> Result<()> {
    let mut dirs = settle(edit, &|_, _| true)?;
    let mut entries: BTreeMap<Ino, Vec<SessionEntry>> = BTreeMap::new();
    for copy in copies {
        if let Some((ino, entry)) = entry_of_copy(edit, copy)? {
            entries.entry(ino).or_default().push(entry);
        }
    }
    let mut dropped = BTreeSet::new();
    for (ino, entries) in entries {
        let row = edit.view().inode(ino)?;
        if u32::try_from(entries.len()).ok() != Some(row.nlink) {
            continue;
        }
        for SessionEntry { parent, name, path, base } in entries {
            edit.txn.delete_dentry(parent, &name)?;
            for path in row.origin.iter().map(|origin| &origin.path).chain([&base]) {
                forget_originals(edit, path)?;
            }
            dirs.insert(path.parent());
            dropped.insert(path);
        }
        edit.txn.delete_inode(ino)?;
    }
    let mut lost: Vec<_> = copies.iter().collect();
    // Entries before their directory.
    lost.sort_by(|a, b| b.path.cmp(&a.path));
    for copy in lost {
        if drop_lost_dir(edit, copy)? {
            dirs.insert(copy.path.parent());
            dropped.insert(copy.path.clone());
        }
    }
    if dropped.is_empty() && dirs.is_empty() {
        return Ok(());
    }
    edit.invalidate(Invalidation::All);
    count_hidden_links(edit)?;
    update_changed_dirs(edit, dirs, true)?;
    hide_lost_moved_out(edit)?;
    for path in dropped {
        record_given_up(edit, AuditProcedure::Apply, path)?;
    }
    Ok(())
}

/// The entry of a copy, if its number and ctime match, and it was copied from its own base
/// path.
fn entry_of_copy(edit: &Edit<'_>, copy: &UnchangedCopy) -> Result<Option<(Ino, SessionEntry)>> {
    let Some(name) = copy.path.name() else { return Ok(None) };
    let Some(place) = visible_dir(edit, &copy.path.parent())? else { return Ok(None) };
    let Some(parent) = place.ino else { return Ok(None) };
    // Where the base had its directory.
    let lost = match place.base_missing {
        true => edit.view().inode(parent)?.origin.map(|origin| origin.path),
        false => None,
    };
    let Some(dir) = place.base.as_ref().or(lost.as_ref()) else { return Ok(None) };
    let Some(ino) = edit.txn.dentry(parent, &name)? else { return Ok(None) };
    let (row, base) = (edit.view().inode(ino)?, dir.join(&name));
    let is_it = (row.fileid(), row.ctime) == copy.object && row.kind != FileKind::Directory;
    let is_at_home = match &row.origin {
        // Session and base may have moved the file alike.
        Some(origin) if origin.path != base => edit.view().base_attr_at(&origin.path)?.is_none(),
        _ => true,
    };
    if !(is_it && is_at_home && edit.shows(parent, dir)?) {
        return Ok(None);
    }
    if let Some(seen) = &copy.base {
        let now = edit.view().base_attr_at(&base)?;
        if !now.is_some_and(|now| seen.is_same_as(&BaseVersion::of(&now))) {
            return Ok(None);
        }
    }
    Ok(Some((ino, SessionEntry { parent, name, path: copy.path.clone(), base })))
}

/// Removes a directory that the base no longer has, with its whiteouts, if it has no entries and
/// no whiteout that stays; returns whether it did.
fn drop_lost_dir(edit: &mut Edit<'_>, copy: &UnchangedCopy) -> Result<bool> {
    let Some(name) = copy.path.name() else { return Ok(false) };
    let Some(place) = visible_dir(edit, &copy.path)? else { return Ok(false) };
    let Some(ino) = place.ino.filter(|_| place.base_missing) else { return Ok(false) };
    let Some((parent, _)) = edit.txn.name_of(ino)? else { return Ok(false) };
    let row = edit.view().inode(ino)?;
    let Some(origin) = row.origin.as_ref().filter(|_| row.fileid() == copy.object.0) else {
        return Ok(false);
    };
    if edit.txn.redirect(ino)?.is_some() || edit.txn.has_dentries(ino)? {
        return Ok(false);
    }
    let whiteouts = edit.txn.whiteouts_in(&place.merged)?;
    for name in &whiteouts {
        if may_show_again(&*edit.txn, &origin.path.join(name))? {
            return Ok(false);
        }
    }
    for name in &whiteouts {
        edit.txn.remove_whiteout(&place.merged.join(name))?;
    }
    edit.txn.delete_dentry(parent, &name)?;
    edit.txn.delete_inode(ino)?;
    edit.invalidate(Invalidation::All);
    Ok(true)
}
