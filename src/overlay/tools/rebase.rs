//! Removes session rows whose content the base now has.
//!
//! `rebase` removes a row only if the base has the same object, and a directory only without
//! entries. Changes that a client made since the plan stay: an object with another number or ctime
//! is kept; a name that the client removed or moved is hidden if the base got it; a redirect or
//! origin in a base directory that moved gets the new path, wherever it shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{AuditProcedure, MergedPath, Origin};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Time};

use super::tree::TreeView;
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::origin_of;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::node::{DirPlace, is_linked};

/// A path that `apply` wrote to the base, and the session object it replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebaseItem {
    /// Path in the merged tree; of a removed object, the path that it had.
    pub path: MergedPath,
    /// Old path in the base, if it moved.
    pub from: Option<MergedPath>,
    /// Number and ctime of the session's object; one with others stays. `None` if it is removed.
    pub object: Option<(FileId, Time)>,
    /// The session had an entry there. If the base shows there now, a client removed that entry,
    /// and the name is hidden. Must be false if an earlier request removed the rows.
    pub was_entry: bool,
    /// ctime of the base object after `apply`; `None` if it is unknown.
    pub base_ctime: Option<Time>,
    /// The base file had further hard links before `apply`.
    pub was_linked: bool,
}

impl Overlay {
    /// Removes the rows of applied objects that have not changed since and that the base has, so
    /// that the base shows there. Returns the paths of objects that changed and stay. It is one
    /// change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    pub async fn rebase(
        &self,
        caller: &Caller,
        applied: Vec<RebaseItem>,
    ) -> std::result::Result<Vec<MergedPath>, FsError> {
        self.rebase_items(caller, applied, false).await
    }

    /// As [`Overlay::rebase`], without audit rows: the log has them from an earlier request.
    ///
    /// # Errors
    /// As [`Overlay::rebase`].
    pub async fn rebase_logged(
        &self,
        caller: &Caller,
        applied: Vec<RebaseItem>,
    ) -> std::result::Result<Vec<MergedPath>, FsError> {
        self.rebase_items(caller, applied, true).await
    }

    async fn rebase_items(
        &self,
        caller: &Caller,
        applied: Vec<RebaseItem>,
        is_logged: bool,
    ) -> std::result::Result<Vec<MergedPath>, FsError> {
        self.core.base.invalidate();
        self.give_up(caller, move |edit| {
            let moves = Moves::of(&applied);
            edit.follow_moves(&applied, &moves)?;
            let applied = edit.as_named_now(&applied)?;
            let kept = edit.let_go(&applied, &moves)?;
            for applied in applied.iter().filter(|_| !is_logged) {
                edit.record_given_up(AuditProcedure::Apply, applied.path.clone())?;
            }
            Ok(kept)
        })
        .await
    }
}

impl Edit<'_> {
    /// Removes the rows of unchanged objects that the base has. Returns the paths of objects that
    /// changed since they were applied, which stay.
    fn let_go(&mut self, applied: &[RebaseItem], moves: &Moves) -> Result<Vec<MergedPath>> {
        // Compares all first: the removal of one name changes the inode of the others.
        let (mut paths, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for applied in applied {
            match self.since_applied(applied)? {
                Since::Same => drop(paths.insert(&applied.path, applied.was_linked)),
                Since::Changed => drop(kept.insert(&applied.path, applied)),
            }
        }
        for applied in kept.values().filter(|applied| applied.was_entry) {
            self.hide_again(applied)?;
            self.advance_whiteout(applied)?;
        }
        let mut dirs = BTreeSet::new();
        // A directory before its entries: their base paths depend on it.
        for (path, &was_linked) in &paths {
            self.replace_marks_above(path)?;
            dirs.insert(path.parent());
            let Some(name) = path.name() else { continue };
            let Some(place) = self.visible_dir(&path.parent())? else { continue };
            let keeps = |path: &MergedPath| !paths.contains_key(path);
            if self.let_go_of(&place, &name, (was_linked, &keeps))? {
                dirs.insert((*path).clone());
            }
        }
        for dir in dirs.clone() {
            self.follow_base(&dir, moves, &mut dirs)?;
        }
        for from in applied.iter().filter_map(|applied| applied.from.as_ref()) {
            dirs.insert(from.parent());
        }
        self.follow_originals(applied, &kept)?;
        self.invalidate(Invalidation::All);
        self.count_hidden_links()?;
        self.settle(dirs, true)?;
        self.hide_moved_out(&|path| paths.contains_key(path))?;
        Ok(kept.into_keys().cloned().collect())
    }

    /// Updates originals: they move with directories, and go with applied objects. An object that a
    /// client changed since gets the applied state as its original.
    fn follow_originals(
        &mut self,
        applied: &[RebaseItem],
        kept: &BTreeMap<&MergedPath, &RebaseItem>,
    ) -> Result<()> {
        for applied in applied {
            let found = self.visible_dir(&applied.path.parent())?;
            let base = found.and_then(|dir| dir.base.clone()).zip(applied.path.name());
            let Some(path) = base.map(|(dir, name)| dir.join(&name)) else { continue };
            let now = self.view().base_attr_at(&path)?;
            let from =
                applied.from.as_ref().and_then(|from| BasePath::from_bytes(base_bytes(from)));
            if now.as_ref().is_some_and(|now| now.kind == FileKind::Directory) {
                if let Some(from) = from {
                    self.txn.rename_originals(&from, &path)?;
                }
                continue;
            }
            for gone in from.iter().chain([&path]) {
                self.forget_originals(gone)?;
            }
            if let Some(now) = now.filter(|now| applied.base_ctime == Some(now.ctime))
                && kept.contains_key(&applied.path)
            {
                let content = match now.kind {
                    FileKind::Regular => self.read_original(&path, &now)?,
                    FileKind::Symlink => Some(self.core.base.read_link(&path)?),
                    _ => continue,
                };
                self.keep_original(&path, &now, content.as_deref(), true)?;
            }
        }
        Ok(())
    }

    /// The items with their current paths: a client may have moved a directory above since.
    pub(super) fn as_named_now(&self, applied: &[RebaseItem]) -> Result<Vec<RebaseItem>> {
        let named_now = |applied: &RebaseItem| {
            let above = BasePath::from_bytes(base_bytes(&applied.path.parent()));
            let place = match above {
                Some(above) => self.view().place_of_base(&above)?,
                None => None,
            };
            let path = place.zip(applied.path.name()).map(|(dir, name)| dir.merged.join(&name));
            let path = path.unwrap_or_else(|| applied.path.clone());
            Ok(RebaseItem { path, ..applied.clone() })
        };
        applied.iter().map(named_now).collect()
    }

    /// Points redirects into moved base directories at their new paths, including redirects that a
    /// client moved.
    ///
    /// The base directory's number shows whether that was done before. A copied base has other
    /// numbers: there, an applied directory is recognised by its redirect, and one below it by its
    /// old path, where nothing is.
    fn follow_moves(&mut self, applied: &[RebaseItem], moves: &Moves) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let objects: BTreeMap<FileId, &RebaseItem> = applied
            .iter()
            .filter_map(|applied| Some((applied.object?.0, applied)))
            .filter(|(_, applied)| applied.from.is_some())
            .collect();
        let mut followed = Vec::new();
        for ino in self.txn.redirects()? {
            let Some(old) = self.txn.redirect(ino)? else { continue };
            let Some(new) = moves.follow(&old) else { continue };
            let mut row = self.view().inode(ino)?;
            let at = |path: &BasePath| -> Result<Option<BaseAttr>> {
                let attr = self.view().base_attr_at(path)?;
                Ok(attr.filter(|attr| attr.kind == FileKind::Directory))
            };
            let Some(after) = at(&new)? else { continue };
            let before = at(&old)?;
            let is_it = |attr: &BaseAttr| {
                row.origin.as_ref().is_none_or(|origin| origin.fileid == attr.fileid)
            };
            let from = objects.get(&row.fileid()).and_then(|applied| applied.from.as_ref());
            let is_applied = from.is_some_and(|from| base_bytes(from) == old.as_bytes());
            let is_new = match &before {
                Some(before) if is_it(before) => false,
                Some(_) => is_applied || is_it(&after),
                None => true,
            };
            if !is_new {
                continue;
            }
            if let Some(origin) = &mut row.origin {
                origin.path = new.clone();
            }
            followed.push((row, new));
        }
        // Directories may have swapped paths: a base directory has one redirect at a time (R1).
        for (row, _) in &followed {
            self.txn.remove_redirect(row.ino)?;
        }
        // A directory before its entries: their base paths depend on it.
        followed.sort_by(|(_, a), (_, b)| a.cmp(b));
        for (row, new) in &followed {
            self.settle_other(new)?;
            self.txn.put_inode(row)?;
            self.txn.put_redirect(row.ino, new)?;
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    /// Removes the redirect of the directory that had this base path before another one moved
    /// there, if it moved to its own path in the base: a later request handles it.
    fn settle_other(&mut self, path: &BasePath) -> Result<()> {
        let Some(ino) = self.txn.redirected_to(path)? else { return Ok(()) };
        let Some((parent, name)) = self.txn.name_of(ino)? else { return Ok(()) };
        let place = self.view().place_of_inode(parent, self.view().shown(parent)?)?;
        let Some(own) = place.base.as_ref().map(|base| base.join(&name)) else { return Ok(()) };
        let (there, mut row) = (self.view().base_attr_at(&own)?, self.view().inode(ino)?);
        if let (Some(there), Some(origin)) = (there, &mut row.origin)
            && origin.fileid == there.fileid
        {
            origin.path = own;
            self.txn.put_inode(&row)?;
            self.txn.remove_redirect(ino)?;
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    /// Hides the base's new object at a path from which a client removed the session's entry.
    pub(super) fn hide_again(&mut self, applied: &RebaseItem) -> Result<()> {
        let path = &applied.path;
        let Some(name) = path.name() else { return Ok(()) };
        let Some(place) = self.visible_dir(&path.parent())? else { return Ok(()) };
        let Some(child) = self.view().child(&place, &name)? else { return Ok(()) };
        let is_other = applied.object.is_none_or(|(id, _)| id != child.node.fileid());
        if !child.has_dentry {
            self.ensure_dir(&place)?;
            // `place` is outdated: `ensure_dir` may have added the directory's row.
            let place = self.visible_dir(&path.parent())?.ok_or(FsError::Stale)?;
            match child.node.is_dir() {
                true => self.drop_entry(&place, None, &name)?,
                false => self.unlink(&place, &name, child)?,
            }
            self.invalidate(Invalidation::All);
        } else if let (true, Some(row)) = (is_other, child.node.row())
            && row.kind == FileKind::Directory
            && row.origin.is_none()
            && self.txn.redirect(row.ino)?.is_none()
            && let Some(base) = &place.base
            && self.view().base_dir_at(base.join(&name))?.is_some()
        {
            // A client made a new directory there, which must hide the base's.
            let row = row.clone();
            self.make_opaque(&row)?;
            self.invalidate(Invalidation::All);
        }
        Ok(())
    }

    /// Sets the time of a whiteout that a client made during apply to at least the ctime of the
    /// base object after apply, if the object still has that. Otherwise the next apply would take
    /// this one's later steps for a change of the host.
    pub(super) fn advance_whiteout(&mut self, applied: &RebaseItem) -> Result<()> {
        let path = &applied.path;
        let (Some(ctime), Some(name)) = (applied.base_ctime, path.name()) else { return Ok(()) };
        if !self.txn.is_whited_out(path)? {
            return Ok(());
        }
        let Some(place) = self.visible_dir(&path.parent())? else { return Ok(()) };
        let Some(base) = &place.base else { return Ok(()) };
        let now = self.view().base_attr_at(&base.join(&name))?;
        if now.is_some_and(|attr| attr.ctime == ctime) {
            self.txn.add_whiteout(path, ctime.max(self.now))?;
        }
        Ok(())
    }

    /// Updates the origins of rows below a directory that moved in the base. The directories among
    /// them are added to `dirs`.
    fn follow_base(
        &mut self,
        dir: &MergedPath,
        moves: &Moves,
        dirs: &mut BTreeSet<MergedPath>,
    ) -> Result<()> {
        let mut open = vec![dir.clone()];
        while let Some(path) = open.pop() {
            let Some(place) = self.visible_dir(&path)? else { continue };
            let (Some(ino), Some(base)) = (place.ino, &place.base) else { continue };
            for (name, child) in self.entries_of(ino)? {
                let Some(mut row) = self.txn.inode(child)? else { continue };
                let Some(origin) = &mut row.origin else { continue };
                let now = base.join(&name);
                let moved_along = moves.follow_dir_of(&origin.path).as_ref() == Some(&now);
                let is_dir = row.kind == FileKind::Directory;
                // A copied base has other numbers than the session's. A directory that moved by
                // itself may belong to a later request, which has to find it as it was applied.
                let is_there = self.view().base_attr_at(&now)?.is_some_and(|attr| {
                    (attr.fileid == origin.fileid && !is_dir)
                        || (attr.kind == row.kind && moved_along)
                });
                if origin.path == now || !is_there {
                    continue;
                }
                let was = std::mem::replace(&mut origin.path, now.clone());
                self.txn.rename_originals(&was, &now)?;
                self.txn.put_inode(&row)?;
                if is_dir {
                    self.txn.remove_redirect(child)?;
                    self.invalidate(Invalidation::All);
                    dirs.insert(path.join(&name));
                    open.push(path.join(&name));
                }
            }
        }
        Ok(())
    }

    /// Whether an object changed since it was applied.
    fn since_applied(&self, applied: &RebaseItem) -> Result<Since> {
        let found = TreeView { view: self.view(), knows_base: true }.find(&applied.path)?;
        Ok(match (found, applied.object) {
            (None, None) => Since::Same,
            (Some(found), Some((id, ctime))) => {
                let attr = found.attr();
                let is_base = found.row().is_none();
                // A directory's entries are compared by themselves, and change its ctime.
                let is_dir = attr.kind == FileKind::Directory;
                let is_same = attr.fileid == id && (is_dir || attr.ctime == ctime);
                // A directory that did not move may show the base since an earlier request.
                let may_be_base = !applied.was_entry || (is_dir && applied.from.is_none());
                match (is_same, is_base) {
                    (true, false) => Since::Same,
                    (true, true) if may_be_base => Since::Same,
                    // Only the base had the name, and has another object there.
                    (false, true) if !applied.was_entry => Since::Same,
                    _ => Since::Changed,
                }
            }
            (Some(found), None) if found.row().is_none() => Since::Same,
            _ => Since::Changed,
        })
    }

    /// Removes the row of one name; returns whether it is a directory that the base now has, whose
    /// row stays. Of the base file's further names, if it had some (`was_linked`), those that
    /// `keeps` accepts keep the session's file: it gets entries there.
    fn let_go_of(
        &mut self,
        dir: &DirPlace,
        name: &Name,
        (was_linked, keeps): (bool, &dyn Fn(&MergedPath) -> bool),
    ) -> Result<bool> {
        let path = dir.merged.join(name);
        let there = match &dir.base {
            Some(base) => {
                let base = base.join(name);
                self.view().base_attr_at(&base)?.map(|attr| (base, attr))
            }
            None => None,
        };
        let entry = match dir.ino {
            Some(parent) => self.txn.dentry(parent, name)?.map(|ino| (parent, ino)),
            None => None,
        };
        let Some((parent, ino)) = entry else {
            if there.is_none() {
                self.txn.remove_whiteout(&path)?;
                self.txn.remove_whiteouts_below(&path)?;
            }
            return Ok(false);
        };
        let mut row = self.view().inode(ino)?;
        let Some((base, attr)) = there.filter(|(_, attr)| attr.kind == row.kind) else {
            return Ok(false);
        };
        if row.kind == FileKind::Directory {
            self.replace_mark(&row)?;
            self.txn.remove_redirect(ino)?;
            // Not if another directory was put there: its entries are as unknown as before.
            let is_other = |known: &Origin| known.path == base && known.fileid != attr.fileid;
            if !row.origin.as_ref().is_some_and(is_other) {
                row.follow_base_attributes([attr.mode, attr.uid, attr.gid]);
                row.origin = Some(origin_of(base, &attr));
            }
            self.txn.put_inode(&row)?;
            self.invalidate(Invalidation::All);
            return Ok(true);
        }
        let is_alone = !was_linked && !is_linked(attr.kind, attr.nlink);
        if is_alone
            && self.has_other_names(&row, &path, keeps)?
            && self.is_as_applied(&row, &path, (&base, &attr))?
        {
            // The other names become further hard links of the base file.
            row.origin = Some(origin_of(base, &attr));
            self.txn.put_inode(&row)?;
            self.invalidate(Invalidation::All);
            return Ok(false);
        }
        self.txn.delete_dentry(parent, name)?;
        // The ctime stays: later requests compare it for the file's other names.
        row.nlink = row.nlink.saturating_sub(1);
        // Its other base names show the applied content too, if they are still one file.
        let is_one = row.origin.as_ref().is_some_and(|origin| origin.fileid == attr.fileid);
        if row.nlink > 0 && is_one {
            self.detect_new_links(&mut row)?;
            self.refresh_origin_ctime(&mut row, &attr);
        }
        if !is_one && was_linked {
            self.move_to_other_names(&mut row, &base, keeps)?;
        }
        let is_from_here = row.origin.as_ref().is_some_and(|origin| origin.path == base);
        if !is_one && is_from_here && row.copy_up.is_none() && !is_linked(attr.kind, attr.nlink) {
            // The base file is another one now, and that of no other name: the file is a new one.
            row.origin = None;
        }
        if row.nlink > 0 || (!is_one && self.adopt_base_name(&mut row, keeps)?) {
            self.txn.put_inode(&row)?;
        } else {
            self.txn.delete_inode(ino)?;
        }
        Ok(false)
    }
}

/// The state of an object since it was applied.
enum Since {
    /// Unchanged, or the base already shows there.
    Same,
    /// A client changed or removed it.
    Changed,
}

/// The path in the base of a path in the merged tree.
fn base_bytes(path: &MergedPath) -> &[u8] {
    path.as_bytes().get(1..).unwrap_or_default()
}

/// Applied moves in the base: old path to new path.
struct Moves(BTreeMap<Vec<u8>, Vec<u8>>);

impl Moves {
    fn of(applied: &[RebaseItem]) -> Self {
        let moved = applied.iter().filter(|applied| applied.object.is_some());
        let moved = moved.filter_map(|applied| Some((applied.from.as_ref()?, &applied.path)));
        Self(moved.map(|(from, to)| (base_bytes(from).into(), base_bytes(to).into())).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Path after the moves, if it moves: the move of the longest prefix decides.
    fn follow(&self, path: &BasePath) -> Option<BasePath> {
        let bytes = path.as_bytes();
        let ends = (1..=bytes.len()).rev().filter(|&end| end == bytes.len() || bytes[end] == b'/');
        let found = ends.into_iter().find_map(|end| Some((self.0.get(&bytes[..end])?, end)));
        let (to, end) = found?;
        BasePath::from_bytes(&[to, &bytes[end..]].concat())
    }

    /// Path after the moves of its directory, ignoring a move of the path itself.
    fn follow_dir_of(&self, path: &BasePath) -> Option<BasePath> {
        let (dir, name) = path.split()?;
        Some(self.follow(&dir)?.join(&name))
    }
}
