//! Removes copies that the session has changed nothing of: the base shows there again.
//!
//! Such a copy hides what the base gets later. It is left by changes that were taken back, and by
//! further names of a file that were applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::BasePath;
use crate::delta::{AuditProcedure, Ino, MergedPath};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Time};

use super::Overlay;
use super::cache::Invalidation;
use super::edit::Edit;
use super::error::Result;

/// A file or link of the session that is as it was in the base when the session began to change it,
/// or a directory that was copied up and that the base does not have any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedCopy {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Its number, and the time of its last change: anything else stays. Of a directory only the
    /// number counts.
    pub object: (FileId, Time),
}

/// An entry of the session.
struct Entry {
    parent: Ino,
    name: Name,
    path: MergedPath,
    /// Where the base shows through its directory.
    base: BasePath,
}

impl Overlay {
    /// Removes these copies from the session. A file with several entries stays unless all of them
    /// are among these, each where the base had the file; so does a directory in which something is
    /// left. It is one change, synced before this returns.
    ///
    /// # Errors
    /// The session takes no changes, or it or the base cannot be read: nothing has changed.
    pub async fn drop_unchanged(
        &self,
        caller: &Caller,
        copies: Vec<UnchangedCopy>,
    ) -> std::result::Result<(), FsError> {
        self.core.base.invalidate();
        self.give_up(caller, move |edit| edit.drop_copies(&copies)).await
    }
}

impl Edit<'_> {
    fn drop_copies(&mut self, copies: &[UnchangedCopy]) -> Result<()> {
        let mut entries: BTreeMap<Ino, Vec<Entry>> = BTreeMap::new();
        for copy in copies {
            if let Some((ino, entry)) = self.entry_of(copy)? {
                entries.entry(ino).or_default().push(entry);
            }
        }
        let (mut dirs, mut dropped) = (BTreeSet::new(), Vec::new());
        for (ino, entries) in entries {
            let row = self.view().inode(ino)?;
            if u32::try_from(entries.len()).ok() != Some(row.nlink) {
                continue;
            }
            for Entry { parent, name, path, base } in entries {
                self.txn.delete_dentry(parent, &name)?;
                self.forget_originals(&base)?;
                dirs.insert(path.parent());
                dropped.push(path);
            }
            self.txn.delete_inode(ino)?;
        }
        let mut lost: Vec<_> = copies.iter().collect();
        // What is in a directory goes before it.
        lost.sort_by(|a, b| b.path.cmp(&a.path));
        for copy in lost {
            if self.drop_lost_dir(copy)? {
                dirs.insert(copy.path.parent());
                dropped.push(copy.path.clone());
            }
        }
        if dropped.is_empty() {
            return Ok(());
        }
        self.invalidate(Invalidation::All);
        self.count_hidden_links()?;
        self.settle(dirs, true)?;
        for path in dropped {
            self.record_given_up(AuditProcedure::Apply, path)?;
        }
        Ok(())
    }

    /// The entry of a copy, if that is as it was told, and what the base has at its own place is
    /// what it was copied from.
    fn entry_of(&self, copy: &UnchangedCopy) -> Result<Option<(Ino, Entry)>> {
        let Some(name) = copy.path.name() else { return Ok(None) };
        let Some(place) = self.visible_dir(&copy.path.parent())? else { return Ok(None) };
        let Some(parent) = place.ino else { return Ok(None) };
        // Where the base had its directory.
        let lost = match place.base_missing {
            true => self.view().inode(parent)?.origin.map(|origin| origin.path),
            false => None,
        };
        let Some(dir) = place.base.as_ref().or(lost.as_ref()) else { return Ok(None) };
        let Some(ino) = self.txn.dentry(parent, &name)? else { return Ok(None) };
        let (row, base) = (self.view().inode(ino)?, dir.join(&name));
        let is_it = (row.fileid(), row.ctime) == copy.object && row.kind != FileKind::Directory;
        let is_at_home = row.origin.as_ref().is_none_or(|origin| origin.path == base);
        if !(is_it && is_at_home && self.shows(parent, dir)?) {
            return Ok(None);
        }
        Ok(Some((ino, Entry { parent, name, path: copy.path.clone(), base })))
    }

    /// Removes a directory that the base does not have any more, if the session has nothing in it;
    /// whether it did. What is whited out in it stays hidden if the base gets it again.
    fn drop_lost_dir(&mut self, copy: &UnchangedCopy) -> Result<bool> {
        let Some(name) = copy.path.name() else { return Ok(false) };
        let Some(place) = self.visible_dir(&copy.path)? else { return Ok(false) };
        let Some(ino) = place.ino.filter(|_| place.base_missing) else { return Ok(false) };
        let Some((parent, _)) = self.txn.name_of(ino)? else { return Ok(false) };
        let row = self.view().inode(ino)?;
        if row.fileid() != copy.object.0
            || self.txn.redirect(ino)?.is_some()
            || self.txn.has_dentries(ino)?
            || !self.txn.whiteouts_in(&place.merged)?.is_empty()
        {
            return Ok(false);
        }
        self.txn.delete_dentry(parent, &name)?;
        self.txn.delete_inode(ino)?;
        self.invalidate(Invalidation::All);
        Ok(true)
    }
}
