//! Removes copies without a change, so that the base shows there again.
//!
//! Such a copy hides later changes of the base. It remains after changes that were reverted, and
//! after an apply of other hard links of its file.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::BasePath;
use crate::delta::{AuditProcedure, Ino, MergedPath};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Time};

use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;

/// A session's file or symbolic link without a change, or a copied-up directory that the base no
/// longer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedCopy {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Number and ctime: an object with others stays. Of a directory, only the number counts.
    pub object: (FileId, Time),
}

/// An entry of the session.
struct Entry {
    parent: Ino,
    name: Name,
    path: MergedPath,
    /// The entry's path in the base.
    base: BasePath,
}

impl Overlay {
    /// Removes these copies from the session. A file with several entries stays unless all of them
    /// are given, each at its base path. A directory with entries or whiteouts stays. It is one
    /// change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
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
        let (mut dirs, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        for (ino, entries) in entries {
            let row = self.view().inode(ino)?;
            if u32::try_from(entries.len()).ok() != Some(row.nlink) {
                continue;
            }
            for Entry { parent, name, path, base } in entries {
                self.txn.delete_dentry(parent, &name)?;
                self.forget_originals(&base)?;
                dirs.insert(path.parent());
                dropped.insert(path);
            }
            self.txn.delete_inode(ino)?;
        }
        let mut lost: Vec<_> = copies.iter().collect();
        // Entries before their directory.
        lost.sort_by(|a, b| b.path.cmp(&a.path));
        for copy in lost {
            if self.drop_lost_dir(copy)? {
                dirs.insert(copy.path.parent());
                dropped.insert(copy.path.clone());
            }
        }
        if dropped.is_empty() {
            return Ok(());
        }
        self.invalidate(Invalidation::All);
        self.count_hidden_links()?;
        self.settle(dirs, true)?;
        self.hide_moved_out(&|path| dropped.contains(path))?;
        for path in dropped {
            self.record_given_up(AuditProcedure::Apply, path)?;
        }
        Ok(())
    }

    /// The entry of a copy, if its number and ctime match, and it was copied from its own base
    /// path.
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

    /// Removes a directory that the base no longer has, if it has no entries and no whiteouts;
    /// returns whether it did. A whiteout hides its name if the base gets the directory again.
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
