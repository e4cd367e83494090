//! Drops the session's changes at paths, so that the base shows there again.

use std::collections::{BTreeSet, HashSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{AuditProcedure, Ino, InodeRow, MergedPath, Origin};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Outcome};
use crate::worker::Cost;

use super::tree::TreeView;
use super::undo::{Undo, is_in};
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up_background;
use crate::overlay::edit::{Edit, moved_on};
use crate::overlay::error::Result;
use crate::overlay::node::{DirPlace, Node};

impl Overlay {
    /// Drops the session's changes at `paths`, and at the paths that must go with them
    /// ([`TreeView::undo`]). It is one change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    /// [`FsError::TryLater`] while the base has the journal of an unfinished apply.
    pub async fn discard(
        &self,
        caller: &Caller,
        paths: Vec<MergedPath>,
    ) -> std::result::Result<Undo, FsError> {
        self.give_up(caller, move |edit| {
            edit.refuse_during_apply()?;
            let undo = TreeView { view: edit.view(), knows_base: true }.undo(&paths)?;
            edit.forget_all(&undo.paths)?;
            let idle: HashSet<_> = undo.idle.iter().map(|idle| &idle.path).collect();
            for path in paths.iter().filter(|path| !idle.contains(path)) {
                edit.record_given_up(AuditProcedure::Discard, path.clone())?;
            }
            Ok(undo)
        })
        .await
    }

    /// Resets directories to the base's mode, owner and group; their entries stay. It is one
    /// change, synced before this returns.
    ///
    /// # Errors
    /// As [`Overlay::discard`].
    pub async fn discard_attributes(
        &self,
        caller: &Caller,
        dirs: Vec<MergedPath>,
    ) -> std::result::Result<(), FsError> {
        self.give_up(caller, move |edit| {
            edit.refuse_during_apply()?;
            for dir in &dirs {
                edit.reset_attributes(dir)?;
                edit.record_given_up(AuditProcedure::Discard, dir.clone())?;
            }
            Ok(())
        })
        .await
    }

    /// Whether an apply to the base, of any session, has begun to change it and has not ended.
    pub fn has_unfinished_apply(&self) -> bool {
        self.core.base.has_unfinished_apply().unwrap_or(false)
    }

    pub(super) async fn give_up<T: Send + 'static>(
        &self,
        caller: &Caller,
        mut f: impl FnMut(&mut Edit<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, FsError> {
        let change = self.change(caller, Cost::Offload, 0, true, move |edit| {
            // It frees space, or follows the base: no quota refuses it.
            edit.is_unlimited = true;
            let done = edit.check_writable().and_then(|()| f(edit));
            Outcome { result: done.map_err(|error| error.into_fs()), context: () }
        });
        change.await?.value.result
    }
}

impl Edit<'_> {
    /// Refuses a discard while an apply changes the base: at its end, the apply would take a
    /// discarded object for one that a client removed, and hide the object that it wrote. An apply
    /// writes its journal before it waits for earlier changes, so none starts between this and the
    /// commit.
    fn refuse_during_apply(&self) -> Result<()> {
        match self.core.base.has_unfinished_apply()? {
            true => Err(FsError::TryLater.into()),
            false => Ok(()),
        }
    }

    /// Resets a directory to the base's mode, owner and group, and drops it if nothing differs
    /// then.
    fn reset_attributes(&mut self, path: &MergedPath) -> Result<()> {
        let Some(place) = self.visible_dir(path)? else { return Ok(()) };
        let (Some(ino), Some(base)) = (place.ino, &place.base) else { return Ok(()) };
        let is_dir = |attr: &BaseAttr| attr.kind == FileKind::Directory;
        let Some(attr) = self.view().base_attr_at(base)?.filter(is_dir) else { return Ok(()) };
        let mut row = self.view().inode(ino)?;
        (row.mode, row.uid, row.gid) = (attr.mode, attr.uid, attr.gid);
        row.ctime = moved_on(row.ctime, self.now);
        self.know_again(&place, &mut row)?;
        self.txn.put_inode(&row)?;
        self.invalidate(Invalidation::All);
        match self.bare(&place, &row, false)? {
            Some(_) => self.settle(BTreeSet::from([path.clone()]), false),
            None => Ok(()),
        }
    }

    /// Makes the base show at these paths.
    fn forget_all(&mut self, paths: &[MergedPath]) -> Result<()> {
        let mut kept = BTreeSet::new();
        for path in paths {
            self.replace_marks_above(path)?;
        }
        for path in paths {
            self.forget(path, &mut kept)?;
        }
        self.invalidate(Invalidation::All);
        for path in paths {
            self.hide_elsewhere(path)?;
        }
        let chosen: HashSet<_> = paths.iter().cloned().collect();
        self.part_from_base(kept, &chosen)?;
        for path in paths {
            self.forget_originals_at(path)?;
        }
        self.count_hidden_links()?;
        self.settle(paths.iter().map(MergedPath::parent).collect(), false)
    }

    /// Makes the base show at one path; inodes with hard links elsewhere are added to `kept`.
    fn forget(&mut self, path: &MergedPath, kept: &mut BTreeSet<Ino>) -> Result<()> {
        self.txn.remove_whiteouts_below(path)?;
        let Some(name) = path.name() else {
            for (name, ino) in self.entries_of(Ino::ROOT)? {
                self.drop_tree(Ino::ROOT, &name, ino, kept)?;
            }
            return self.reset_root();
        };
        self.txn.remove_whiteout(path)?;
        if let Some(parent) = self.visible_dir(&path.parent())?.and_then(|place| place.ino)
            && let Some(ino) = self.txn.dentry(parent, &name)?
        {
            self.drop_tree(parent, &name, ino, kept)?;
            // The next path must not use cached entries of these rows.
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    /// Replaces the marks of opaque directories above a path by whiteouts, so that the whiteout of
    /// one name can be removed.
    pub(super) fn replace_marks_above(&mut self, path: &MergedPath) -> Result<()> {
        if self.txn.opaque_dirs()?.is_empty() {
            return Ok(());
        }
        let above: Vec<_> = path.above().collect();
        for above in above.iter().rev() {
            let Some(ino) = self.visible_dir(above)?.and_then(|place| place.ino) else { break };
            let row = self.view().inode(ino)?;
            self.replace_mark(&row)?;
        }
        Ok(())
    }

    /// Hides the base object at a path again if the base directory shows elsewhere: it was moved
    /// before the present directory was made.
    fn hide_elsewhere(&mut self, path: &MergedPath) -> Result<()> {
        let Some(name) = path.name() else { return Ok(()) };
        if let Some(place) = self.visible_dir(&path.parent())?
            && let (Some(ino), Some(base)) = (place.ino, &place.base)
            && !self.shows(ino, base)?
            && self.base_has(&place, &name)?
        {
            self.txn.add_whiteout(path, self.now)?;
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    fn reset_root(&mut self) -> Result<()> {
        let mut row = self.view().inode(Ino::ROOT)?;
        if let Some(attr) = self.view().base_attr_at(&BasePath::root())? {
            (row.mode, row.uid, row.gid) = (attr.mode, attr.uid, attr.gid);
        }
        Ok(self.txn.put_inode(&row)?)
    }

    /// Removes an entry with all below it; inodes that have, or may have, hard links elsewhere are
    /// added to `kept`.
    fn drop_tree(
        &mut self,
        parent: Ino,
        name: &Name,
        ino: Ino,
        kept: &mut BTreeSet<Ino>,
    ) -> Result<()> {
        self.txn.delete_dentry(parent, name)?;
        let mut open = vec![ino];
        while let Some(ino) = open.pop() {
            let Some(mut row) = self.txn.inode(ino)?.filter(|row| row.ino != Ino::ROOT) else {
                continue;
            };
            if row.kind == FileKind::Directory {
                for (name, child) in self.entries_of(ino)? {
                    self.txn.delete_dentry(ino, &name)?;
                    open.push(child);
                }
                self.txn.delete_inode(ino)?;
                continue;
            }
            self.detect_new_links(&mut row)?;
            row.nlink = row.nlink.saturating_sub(1);
            row.ctime = moved_on(row.ctime, self.now);
            if row.nlink > 0 || self.view().base_links_left(&row)? > 0 {
                self.txn.put_inode(&row)?;
                kept.insert(ino);
            } else {
                self.txn.delete_inode(ino)?;
                kept.remove(&ino);
            }
        }
        Ok(())
    }

    /// Removes the origin of copied-up files that have names elsewhere, if a name of the origin
    /// shows the base again: an object is in one layer. Finishes their copy-ups first. Other base
    /// names, at which such a file showed without an entry, get one, with the original. Files
    /// without a name are deleted.
    fn part_from_base(
        &mut self,
        mut kept: BTreeSet<Ino>,
        chosen: &HashSet<MergedPath>,
    ) -> Result<()> {
        kept.extend(self.txn.copied_links()?);
        for ino in kept {
            let Some(mut row) = self.txn.inode(ino)? else { continue };
            let Some(origin) = row.origin.clone() else { continue };
            let is_left = |path: &MergedPath| !is_in(path, chosen);
            let shows_again = self.shows_again(&origin, chosen)?;
            if shows_again {
                for path in self.add_entries_at_base_names(&mut row, &is_left)? {
                    self.copy_original(&origin.path, &path)?;
                }
            }
            if row.nlink == 0 && (shows_again || !self.adopt_base_name(&mut row, &is_left)?) {
                self.txn.delete_inode(ino)?;
                continue;
            }
            if !shows_again {
                self.txn.put_inode(&row)?;
                continue;
            }
            while row.copy_up.is_some() {
                copy_up_background::copy_piece(self.core, self.txn, row)?;
                row = self.view().inode(ino)?;
            }
            row.origin = None;
            self.txn.put_inode(&row)?;
        }
        Ok(())
    }

    /// Whether a base object shows at or below one of these paths.
    fn shows_again(&self, origin: &Origin, chosen: &HashSet<MergedPath>) -> Result<bool> {
        for path in self.names_in_base(origin.fileid, origin.nlink, &origin.path)? {
            if let Some(merged) = self.shown_at(&path)?
                && is_in(&merged, chosen)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates directories in which entries were dropped. A copied-up directory that no longer
    /// differs from the base is removed. Any other gets a new ctime, and a new mtime unless the
    /// base now has the same entries (`is_applied`).
    pub(super) fn settle(
        &mut self,
        mut dirs: BTreeSet<MergedPath>,
        is_applied: bool,
    ) -> Result<()> {
        // A directory's path sorts before those of its entries, which are handled first.
        while let Some(path) = dirs.pop_last() {
            let Some(place) = self.visible_dir(&path)? else { continue };
            let Some(ino) = place.ino else { continue };
            let mut row = self.view().inode(ino)?;
            self.follow_base_attributes(&place, &mut row)?;
            self.drop_idle_whiteouts(&place)?;
            let base = self.bare(&place, &row, is_applied)?;
            match (base, path.name()) {
                (Some(_), Some(name)) => {
                    let (parent, _) = self.txn.name_of(ino)?.ok_or(FsError::Stale)?;
                    self.txn.delete_dentry(parent, &name)?;
                    self.txn.delete_inode(ino)?;
                    dirs.insert(path.parent());
                }
                (base, _) => {
                    let shown = self.view().attr(&Node::Delta(Box::new(row.clone())))?;
                    row.ctime = moved_on(shown.ctime, self.now);
                    if is_applied {
                        self.know_again(&place, &mut row)?;
                    } else {
                        row.mtime = base.map_or(row.ctime, |base| base.mtime);
                    }
                    row.subdirs = Some(self.view().count_subdirs(&place)?);
                    self.txn.put_inode(&row)?;
                }
            }
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    /// Updates a directory's origin to the base's ctime, which changed with applied entries, and to
    /// its mode and owner; not if these differ, because another process may have set them.
    fn know_again(&self, place: &DirPlace, row: &mut InodeRow) -> Result<()> {
        let Some((base, origin)) = place.base.as_ref().zip(row.origin.as_mut()) else {
            return Ok(());
        };
        let is_alike = |a: &BaseAttr| (a.mode, a.uid, a.gid) == (row.mode, row.uid, row.gid);
        if let Some(attr) = self.view().base_attr_at(base)?.filter(is_alike)
            && (&origin.path, origin.fileid) == (base, attr.fileid)
        {
            origin.ctime = attr.ctime;
            origin.attributes = Some([attr.mode, attr.uid, attr.gid]);
        }
        Ok(())
    }

    /// Gives a copied-up directory the base's present mode, owner and group where the session set
    /// none.
    fn follow_base_attributes(&self, place: &DirPlace, row: &mut InodeRow) -> Result<()> {
        let from = row.origin.as_ref().map(|origin| &origin.path);
        if let Some(base) = place.base.as_ref().filter(|base| from == Some(base))
            && let Some(attr) = self.view().base_attr_at(base)?
            && attr.kind == FileKind::Directory
        {
            row.follow_base_attributes([attr.mode, attr.uid, attr.gid]);
        }
        Ok(())
    }

    /// The base's attributes of a directory whose row adds nothing to them. With `is_applied`,
    /// another mtime is an addition: a client set it during the apply.
    fn bare(&self, place: &DirPlace, row: &InodeRow, is_applied: bool) -> Result<Option<BaseAttr>> {
        let Some(base) = &place.base else { return Ok(None) };
        let is_copy = match &row.origin {
            Some(origin) => origin.path == *base && self.txn.redirect(row.ino)?.is_none(),
            None => row.ino == Ino::ROOT,
        };
        let is_full = || -> Result<bool> {
            Ok(self.txn.has_dentries(row.ino)? || !self.txn.whiteouts_in(&place.merged)?.is_empty())
        };
        if !is_copy || is_full()? {
            return Ok(None);
        }
        let attr = self.view().base_attr_at(base)?;
        let same = |a: &BaseAttr| {
            (a.mode, a.uid, a.gid) == (row.mode, row.uid, row.gid)
                && (!is_applied || a.mtime == row.mtime)
        };
        Ok(attr.filter(same))
    }

    /// Removes whiteouts of names that the base does not have. Those of moved objects, and of
    /// removed ones with an original, stay: the base may get these again (another git branch).
    fn drop_idle_whiteouts(&mut self, dir: &DirPlace) -> Result<()> {
        if dir.base_missing {
            // The base may get the directory again, with the names that are whited out in it.
            return Ok(());
        }
        for name in self.txn.whiteouts_in(&dir.merged)? {
            if !self.base_has(dir, &name)? && !self.may_come_back(dir, &name)? {
                self.txn.remove_whiteout(&dir.merged.join(&name))?;
            }
        }
        Ok(())
    }

    /// Whether the base object of a name shows elsewhere, or has an original in the session.
    fn may_come_back(&self, dir: &DirPlace, name: &Name) -> Result<bool> {
        let Some(path) = dir.base.as_ref().map(|base| base.join(name)) else { return Ok(false) };
        Ok(self.txn.redirected_to(&path)?.is_some() || self.txn.original(&path)?.is_some())
    }

    pub(super) fn entries_of(&self, dir: Ino) -> Result<Vec<(Name, Ino)>> {
        let mut entries = Vec::new();
        self.txn.dentries(dir, &mut |name, ino, _, _| entries.push((name, ino)))?;
        Ok(entries)
    }

    pub(super) fn record_given_up(
        &mut self,
        procedure: AuditProcedure,
        path: MergedPath,
    ) -> Result<()> {
        let found = TreeView { view: self.view(), knows_base: true }.find(&path)?;
        let fileid = found.map_or(FileId(0), |found| found.attr().fileid);
        self.record(procedure, fileid, path, None, (None, None))
    }
}
