//! One operation of a write batch: its transaction, its caller, and the rules that all changes
//! share.

use std::sync::Arc;

use crate::base::BasePath;
use crate::delta::{
    AuditProcedure, AuditRow, AuditSet, Ino, InodeRow, MergedPath, Original, UnsavedContent,
    WriteTxn,
};
use crate::vfs::{Attr, Caller, FileId, FsError, Locator, Name, Outcome, Time, Wcc};

use super::Core;
use super::cache::Invalidation;
use super::error::Result;
use super::limits::check_path;
use super::memo::Memo;
use super::moved_out::is_moved_out_of;
use super::node::{DirId, DirPlace, Node};
use super::original::keep_hidden_original;
use super::resolve::View;
use super::scope::Scope;
use super::snapshot::{DirChange, Renamed};

/// A change in progress, for one caller and one time.
pub(super) struct Edit<'a> {
    pub txn: &'a mut dyn WriteTxn,
    pub core: &'a Core,
    pub scope: &'a Scope,
    pub caller: &'a Caller,
    /// Timestamp of the change. An object's new times may be later: see [`moved_on`].
    pub now: Time,
    /// Cached facts that readers must forget after the commit.
    pub invalidations: Vec<Invalidation>,
    /// Changed names whose directory's ctime has not been updated yet.
    pub renamed: Vec<(FileId, Renamed)>,
    /// Current rows of the directories whose entries change.
    pub dirs: Vec<InodeRow>,
    /// The inode and merged path of the file that this change copied up.
    pub copied: Option<(Ino, MergedPath)>,
    /// Whether the change ignores quotas.
    pub is_unlimited: bool,
    /// Whether to wake the background copy: content became pending, or a pending copy can proceed.
    pub wakes_copies: bool,
    /// Originals of the base objects that this change removed.
    pub removed: Vec<Original>,
    /// Whether the change fails if it takes away much content that is not saved for a checkpoint.
    pub saves_first: bool,
    /// The content for which it failed.
    pub unsaved: Option<UnsavedContent>,
}

/// The directory that an operation changes, with its attributes before the operation.
#[derive(Clone)]
pub(super) struct Parent {
    pub place: Arc<DirPlace>,
    pub attr: Attr,
}

/// The new ctime of an object that last changed at `before`: now, but strictly later, so that no
/// client takes the object for unchanged.
pub(super) fn moved_on(before: Time, now: Time) -> Time {
    now.max(before.next())
}

impl<'a> Edit<'a> {
    pub fn new(
        txn: &'a mut dyn WriteTxn,
        core: &'a Core,
        scope: &'a Scope,
        caller: &'a Caller,
        now: Time,
    ) -> Self {
        Self {
            txn,
            core,
            scope,
            caller,
            now,
            invalidations: Vec::new(),
            renamed: Vec::new(),
            dirs: Vec::new(),
            copied: None,
            is_unlimited: false,
            wakes_copies: false,
            removed: Vec::new(),
            saves_first: false,
            unsaved: None,
        }
    }

    /// The merged tree including this change so far.
    pub fn view(&self) -> View<'_> {
        View { txn: &*self.txn, core: self.core, memo: &*self.core.writer_memo, scope: self.scope }
    }

    /// Runs `change` on the directory `dir`, and adds the directory's wcc data.
    pub fn in_dir<T>(
        &mut self,
        dir: &Locator,
        change: impl FnOnce(&mut Self, &Parent) -> Result<T>,
    ) -> Outcome<T, Wcc> {
        let parent = match self.parent(dir) {
            Ok(parent) => parent,
            Err(error) => return Outcome::err(error.into_fs(), self.unchanged(dir)),
        };
        let result = change(self, &parent).map_err(|error| error.into_fs());
        let context = self.wcc(dir, parent.attr, result.is_ok());
        Outcome { result, context }
    }

    /// Runs `change` on an object with its attributes before, and adds the object's wcc data.
    /// `change` returns the new row, or `None` if nothing changed.
    pub fn on_object(
        &mut self,
        object: &Locator,
        change: impl FnOnce(&mut Self, Node, &Attr) -> Result<Option<Box<InodeRow>>>,
    ) -> Outcome<(), Wcc> {
        let view = self.view();
        let found = view.node(object).and_then(|node| Ok((view.attr(&node)?, node)));
        let (before, node) = match found {
            Ok(found) => found,
            Err(error) => return error.into_fs().into(),
        };
        match change(self, node, &before) {
            Ok(row) => Outcome::ok((), self.wcc_of(row.as_deref(), before)),
            Err(error) => Outcome::err(error.into_fs(), self.wcc_of(None, before)),
        }
    }

    /// The directory to change, with its attributes before the change.
    pub fn parent(&mut self, dir: &Locator) -> Result<Parent> {
        let view = self.view();
        let (node, place) = view.dir(dir)?;
        let attr = view.attr(&node)?;
        if let Node::Delta(mut row) = node
            && self.dirs.iter().all(|known| known.ino != row.ino)
        {
            // The new times must also be later than the base directory's times that clients saw.
            (row.mtime, row.ctime) = (attr.mtime, attr.ctime);
            self.dirs.push(*row);
        }
        Ok(Parent { place, attr })
    }

    /// The wcc data of an object that had the attributes `before`.
    pub fn wcc(&self, object: &Locator, before: Attr, changed: bool) -> Wcc {
        if !changed {
            return Wcc::unchanged(Some(before));
        }
        let row = self.dirs.iter().find(|row| row.fileid() == before.fileid);
        let after = match row {
            Some(row) => self.view().delta_attr(row).ok(),
            None => self.view().attr_of(object).ok(),
        };
        Wcc { before: Some((&before).into()), after }
    }

    /// As [`Self::wcc`], for an object that the change gave the row `row`.
    pub fn wcc_of(&self, row: Option<&InodeRow>, before: Attr) -> Wcc {
        let Some(row) = row else { return Wcc::unchanged(Some(before)) };
        Wcc { before: Some((&before).into()), after: self.view().delta_attr(row).ok() }
    }

    /// The wcc data of an unchanged object. Also for an object of another type than expected.
    pub fn unchanged(&self, object: &Locator) -> Wcc {
        Wcc::unchanged(self.view().attr_of(object).ok())
    }

    /// The object of this very call, if the previous server committed the call and was killed
    /// before its reply was sent. The retransmission succeeds without changing anything.
    pub fn already_applied(&self) -> Option<FileId> {
        self.core.unacknowledged_ops.get(&self.caller.call?).copied()
    }

    /// [`FsError::ReadOnly`] if the session or the scope is read-only.
    pub fn check_writable(&self) -> Result<()> {
        let is_read_only = self.core.is_read_only() || self.scope.read_only;
        if is_read_only { Err(FsError::ReadOnly.into()) } else { Ok(()) }
    }

    /// Updates a delta directory after a change of its entries: mtime, ctime, and the count of
    /// subdirectories by `subdirs`.
    pub fn entries_changed(&mut self, ino: Ino, subdirs: i32) -> Result<()> {
        let known = self.dirs.iter().position(|row| row.ino == ino);
        let mut row = match known {
            Some(at) => self.dirs.swap_remove(at),
            None => self.view().inode(ino)?,
        };
        let before = row.ctime;
        row.ctime = moved_on(row.ctime, self.now);
        row.mtime = row.ctime;
        self.touch_entries(row.fileid(), before, row.ctime);
        row.subdirs = match row.subdirs {
            Some(count) => Some(count.saturating_add_signed(subdirs)),
            None => Some(self.first_count(&row)?),
        };
        self.txn.put_inode(&row)?;
        self.dirs.push(row);
        Ok(())
    }

    /// Applies the change of entries to the cached listing of a directory, after the commit.
    fn touch_entries(&mut self, dir: FileId, before: Time, after: Time) {
        let (here, elsewhere) =
            std::mem::take(&mut self.renamed).into_iter().partition(|r| r.0 == dir);
        self.renamed = elsewhere;
        let here: Vec<(FileId, Renamed)> = here;
        let names = here.into_iter().map(|(_, renamed)| renamed).collect();
        self.invalidate(Invalidation::Entries(dir, DirChange { before, after, names }));
    }

    /// Stores the subdirectory count of a directory before its first dentry. Afterwards the base's
    /// own count is not used any more, so every GETATTR would count again.
    pub fn count_once(&mut self, ino: Ino) -> Result<()> {
        let mut row = self.view().inode(ino)?;
        if row.subdirs.is_none() {
            row.subdirs = Some(self.first_count(&row)?);
            self.txn.put_inode(&row)?;
        }
        Ok(())
    }

    /// Counts the subdirectories of a directory without a stored count: the root, or a directory
    /// that another implementation wrote. Such a directory may be an undeclared copy of the base
    /// directory at its path. A redirect records that base directory before the directory can be
    /// renamed.
    fn first_count(&mut self, row: &InodeRow) -> Result<u32> {
        let place = self.view().place_of_inode(row.ino, row.fileid())?;
        if row.ino != Ino::ROOT
            && row.origin.is_none()
            && let Some(base) = &place.base
            && self.shows(row.ino, base)?
        {
            self.txn.put_redirect(row.ino, base)?;
        }
        self.view().count_subdirs(&place)
    }

    /// Whether a base directory shows through the delta directory `ino`. It may show elsewhere: the
    /// session may have renamed it before another implementation made a directory at its old path.
    pub fn shows(&self, ino: Ino, base: &BasePath) -> Result<bool> {
        let place = self.view().place_of_base(base)?;
        Ok(place.is_some_and(|place| place.ino == Some(ino)))
    }

    /// Adds a dentry and removes the whiteout of its path (specification 0.4, overlay rule 1).
    pub fn add_entry(
        &mut self,
        dir: &DirPlace,
        parent: Ino,
        name: &Name,
        row: &InodeRow,
    ) -> Result<()> {
        self.txn.insert_dentry(parent, name, row.ino)?;
        self.show_name(dir, name, row)
    }

    /// As [`Self::add_entry`], for a name that already has its dentry.
    fn show_name(&mut self, dir: &DirPlace, name: &Name, row: &InodeRow) -> Result<()> {
        if let Some(since) = self.txn.remove_whiteout(&dir.merged.join(name))? {
            keep_hidden_original(self, dir, name, since)?;
        }
        self.renamed.push((dir.fileid, (name.clone(), Some((row.fileid(), row.ino)))));
        self.touch_child(dir.id(), name);
        Ok(())
    }

    /// Removes a name: deletes its dentry in the delta directory `dentry_in`, if it has one, and
    /// adds a whiteout if the base has an object at its path (overlay rule 2), or lost the one that
    /// the session moved, or moved something out of.
    pub fn drop_entry(
        &mut self,
        dir: &DirPlace,
        dentry_in: Option<Ino>,
        name: &Name,
    ) -> Result<()> {
        if let Some(parent) = dentry_in {
            self.txn.delete_dentry(parent, name)?;
        }
        self.hide_name(dir, name)
    }

    /// As [`Self::drop_entry`], for a name without a dentry.
    fn hide_name(&mut self, dir: &DirPlace, name: &Name) -> Result<()> {
        if self.base_has(dir, name)? || is_moved_out_of(&self.view(), dir, name)? {
            let path = dir.merged.join(name);
            // A base path may exceed the limit, but renames must not lengthen it further.
            let base_bytes = dir.base.as_ref().map_or(0, |base| base.as_bytes().len());
            if dir.merged.as_bytes().len() > base_bytes + 1 {
                check_path(&path)?;
            }
            self.txn.add_whiteout(&path, self.now)?;
        }
        self.renamed.push((dir.fileid, (name.clone(), None)));
        self.touch_child(dir.id(), name);
        Ok(())
    }

    /// Renames an object's dentry, within a delta directory or to another one.
    pub fn move_entry(
        &mut self,
        (source, source_ino, old): (&DirPlace, Ino, &Name),
        (target, target_ino, new): (&DirPlace, Ino, &Name),
        row: &InodeRow,
    ) -> Result<()> {
        self.txn.move_dentry((source_ino, old), (target_ino, new), row.ino)?;
        self.hide_name(source, old)?;
        self.show_name(target, new, row)
    }

    /// Whether the base has an object under this name, visible or not.
    pub fn base_has(&self, dir: &DirPlace, name: &Name) -> Result<bool> {
        let Some(base) = &dir.base else { return Ok(false) };
        Ok(self.view().base_attr_at(&base.join(name))?.is_some())
    }

    /// Writes the audit row of a change to one or two paths, with an optional byte range.
    pub fn record(
        &mut self,
        procedure: AuditProcedure,
        fileid: FileId,
        path: MergedPath,
        path2: Option<MergedPath>,
        span: (Option<u64>, Option<u64>),
    ) -> Result<()> {
        let row = self.audit_row(procedure, fileid, path);
        let row = AuditRow { path2, offset: span.0, length: span.1, ..row };
        Ok(self.txn.record(&row)?)
    }

    /// Writes the audit row of a change that set attributes; `size` is a file's new size.
    pub fn record_set(
        &mut self,
        procedure: AuditProcedure,
        fileid: FileId,
        path: MergedPath,
        size: Option<u64>,
        set: AuditSet,
    ) -> Result<()> {
        let row = self.audit_row(procedure, fileid, path);
        Ok(self.txn.record(&AuditRow { offset: size, set, ..row })?)
    }

    /// Writes the audit row of a change, with a note.
    pub fn record_note(
        &mut self,
        procedure: AuditProcedure,
        fileid: FileId,
        path: MergedPath,
        note: String,
    ) -> Result<()> {
        let row = self.audit_row(procedure, fileid, path);
        Ok(self.txn.record(&AuditRow { note: Some(note), ..row })?)
    }

    /// Writes the audit row of a restore of a path and all below it; `last_op` is the last row
    /// before the checkpoint. With `None`, it is of a directory alone.
    pub fn record_restore(
        &mut self,
        (fileid, path): (FileId, MergedPath),
        last_op: Option<u64>,
        note: String,
    ) -> Result<()> {
        let row = self.audit_row(AuditProcedure::Restore, fileid, path);
        Ok(self.txn.record(&AuditRow { offset: last_op, note: Some(note), ..row })?)
    }

    /// An audit row with the caller, the time and one path.
    fn audit_row(&self, procedure: AuditProcedure, fileid: FileId, path: MergedPath) -> AuditRow {
        AuditRow {
            time: self.now,
            client: self.caller.client,
            uid: self.caller.uid,
            gid: self.caller.gid,
            procedure,
            path,
            path2: None,
            fileid,
            offset: None,
            length: None,
            // A repeated WRITE is idempotent, so its call id is not stored.
            call: self.caller.call.filter(|_| procedure != AuditProcedure::Write),
            export: self.scope.export.clone(),
            note: None,
            set: AuditSet::default(),
        }
    }

    /// A merged path of an object, for the audit log.
    pub fn path_of(&self, row: &InodeRow) -> Result<MergedPath> {
        let view = self.view();
        if row.ino == Ino::ROOT {
            return Ok(MergedPath::root());
        }
        if let Some((ino, path)) = &self.copied
            && *ino == row.ino
        {
            return Ok(path.clone());
        }
        let (parent, name) = view.txn.name_of(row.ino)?.ok_or(FsError::Stale)?;
        let parent_id = view.shown(parent)?;
        Ok(view.place_of_inode(parent, parent_id)?.merged.join(&name))
    }

    /// Invalidates a fact: for the writer at once, for readers after the commit.
    pub fn invalidate(&mut self, touch: Invalidation) {
        self.core.writer_memo.forget(&touch);
        self.invalidations.push(touch);
    }

    /// Invalidates the cached object of a name.
    pub fn touch_child(&mut self, dir: DirId, name: &Name) {
        self.invalidate(Invalidation::Child(dir, name.clone()));
    }

    /// Invalidates the cached place of a directory.
    pub fn touch_place(&mut self, ino: Option<Ino>, base: Option<BasePath>) {
        self.invalidate(Invalidation::Place(ino, base));
    }
}
