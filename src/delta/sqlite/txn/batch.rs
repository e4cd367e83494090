//! Row changes inside the writer's transaction.

use rusqlite::Connection;

use crate::base::BasePath;
use crate::delta::{
    AuditRow, CheckpointId, CheckpointKind, CopyUp, Ino, InodeRow, Limits, MadeCheckpoint,
    MergedPath, NewCheckpoint, Original, RestoreOutcome, RestorePaths, RestoreRequest,
    RestoredTree, Result, StoreError, UnsavedContent, Usage, UsageDelta, WriteTxn, whiteout_files,
};
use crate::vfs::{FileId, Name, Time};

use super::negative_cache::NegativeCache;
use super::saved_room::SavedRoom;
use super::snapshot::Snapshot;
use crate::delta::sqlite::table::audit_bound::{self, AuditBound};
use crate::delta::sqlite::table::chunk::Chunks;
use crate::delta::sqlite::table::dentry_ids::DentryIds;
use crate::delta::sqlite::table::inode_numbers::InodeNumbers;
use crate::delta::sqlite::table::old_restore::{self, RestoreNeeds};
use crate::delta::sqlite::table::op::{ClientTexts, LastAuditRow};
use crate::delta::sqlite::table::replica::RowNotes;
use crate::delta::sqlite::table::{
    checkpoint, copy_up, dentry, inode, link, old_content, old_pieces, old_rows, opaque, origin,
    original, prune, quota, redirect, removed_checkpoints, symlink, whiteout,
};
use crate::delta::sqlite::wal::disk_reserve::DiskReserve;

/// Upper bound of the space for a new object with its entry and audit row, in bytes.
const ENTRY_BYTES: usize = 4 << 10;

/// How often the session file stores a whiteout's path: in its row and in indexes.
const WHITEOUT_COPIES: usize = 4;

/// The writer's open batch.
pub(super) struct OpenBatch {
    /// The writing connection.
    pub conn: Connection,
    /// Chunk size, in bytes.
    pub chunk_bytes: u64,
    /// Allocates inode numbers.
    pub numbers: InodeNumbers,
    /// Allocates entry ids.
    pub dentry_ids: DentryIds,
    /// Directories without whiteouts or BLOB names.
    pub negative: NegativeCache,
    /// The last row of the audit log.
    pub last_audit: LastAuditRow,
    /// The last row of the audit log at the last savepoint.
    pub last_audit_before: LastAuditRow,
    /// Bounds the length of the audit log.
    pub audit_bound: AuditBound,
    /// Cached text forms of client addresses.
    pub clients: ClientTexts,
    /// Free disk space.
    pub disk_reserve: DiskReserve,
    /// Whether the session has a checkpoint; `None` if that has to be asked.
    pub has_checkpoint: Option<bool>,
    /// What the batch needs room for.
    pub saved_room: SavedRoom,
    /// Whether the current operation has changed anything, or tried to.
    pub has_changed: bool,
    /// Whether an earlier operation of the batch has.
    pub had_changed: bool,
    /// The current operation's change of quota usage; `None` before usage is counted.
    pub growth: Option<UsageDelta>,
    /// The rows that the batch changes, if another store is to have them.
    pub row_notes: Option<RowNotes>,
    /// The error of the last failed change. Some errors make SQLite roll back the whole
    /// transaction.
    pub failure: Option<StoreError>,
}

impl Snapshot for OpenBatch {
    fn conn(&self) -> Result<&Connection> {
        Ok(&self.conn)
    }

    fn chunk_size(&self) -> u64 {
        self.chunk_bytes
    }

    fn absent(&self) -> Option<&NegativeCache> {
        Some(&self.negative)
    }
}

impl OpenBatch {
    /// Frees the connection's pages and statements.
    pub(super) fn rest(&mut self) {
        self.negative.clear();
        self.conn.flush_prepared_statement_cache();
        // Fails only for a connection that is of no use either.
        let _ = self.conn.execute_batch("PRAGMA shrink_memory");
    }

    /// Resets the caches after a rollback of the operation, or of the `whole` transaction.
    pub(super) fn rolled_back(&mut self, whole: bool) {
        self.negative.clear();
        self.dentry_ids.rolled_back();
        self.audit_bound.rolled_back(whole);
        self.has_checkpoint = None;
    }

    pub(super) fn begin(&mut self) {
        self.failure = None;
        self.saved_room = SavedRoom::default();
        self.disk_reserve.begin();
        self.audit_bound.begin_batch();
        self.begin_operation();
        self.had_changed = false;
    }

    pub(super) fn begin_operation(&mut self) {
        self.growth = self.growth.map(|_| UsageDelta::default());
        self.audit_bound.begin_operation();
        self.saved_room.begin_operation();
        self.had_changed |= self.has_changed;
        self.has_changed = false;
    }

    /// Whether a rollback would undo any change.
    pub(super) fn is_changed(&self) -> bool {
        self.has_changed || self.had_changed
    }

    pub(super) fn has_checkpoint(&mut self) -> Result<bool> {
        if let Some(known) = self.has_checkpoint {
            return Ok(known);
        }
        let found = checkpoint::any(&self.conn)?;
        self.has_checkpoint = Some(found);
        Ok(found)
    }

    /// Usage of an inode before a change; zero while usage is not counted.
    fn usage_before(&self, ino: Ino) -> Result<Usage> {
        match self.growth {
            None => Ok(Usage::default()),
            Some(_) => quota::of_inode(&self.conn, ino, self.chunk_bytes),
        }
    }

    /// Adds a change of an inode's usage.
    fn count(&mut self, before: Usage, after: Usage) {
        if let Some(growth) = &mut self.growth {
            *growth += after.since(before);
        }
    }

    /// The session's whole usage; `None` while usage is not counted.
    fn counted_usage(&self) -> Result<Option<UsageDelta>> {
        self.growth.map(|_| quota::count(&self.conn, self.chunk_bytes)).transpose()
    }

    /// Usage of the whiteouts below some directories; zero while usage is not counted.
    fn whiteouts_usage(&self, dirs: &[&MergedPath]) -> Result<Usage> {
        let mut files = 0;
        if self.growth.is_some() {
            for dir in dirs {
                files += whiteout::below(&self.conn, dir, None)?.files;
            }
        }
        Ok(Usage::of_whiteouts(files))
    }

    /// Runs a change and records its error.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.has_changed = true;
        let result = change(&self.conn);
        if let Err(error) = &result {
            self.saved_room.note(error);
            self.failure = Some(error.clone());
        }
        result
    }
}

impl WriteTxn for OpenBatch {
    fn allocate_ino(&mut self) -> Result<Ino> {
        self.numbers.allocate()
    }

    fn put_inode(&mut self, row: &InodeRow) -> Result<()> {
        let used = self.usage_before(row.ino)?;
        self.change(|conn| inode::put(conn, row))?;
        self.count(used, row.usage(self.chunk_bytes));
        Ok(())
    }

    fn delete_inode(&mut self, ino: Ino) -> Result<()> {
        let used = self.usage_before(ino)?;
        self.require_saved_room(ino, None, 0)?;
        self.change(|conn| inode::delete(conn, ino))?;
        self.count(used, Usage::default());
        Ok(())
    }

    fn insert_dentry(&mut self, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
        self.disk_reserve.add(&self.conn, ENTRY_BYTES)?;
        self.has_changed = true;
        let id = self.dentry_ids.allocate(&self.conn)?;
        self.change(|conn| dentry::insert(conn, id, parent, name, ino))
    }

    fn move_dentry(&mut self, from: (Ino, &Name), to: (Ino, &Name), ino: Ino) -> Result<()> {
        if self.change(|conn| dentry::rename(conn, from, to, ino))? {
            return Ok(());
        }
        self.delete_dentry(from.0, from.1)?;
        self.insert_dentry(to.0, to.1, ino)
    }

    fn delete_dentry(&mut self, parent: Ino, name: &Name) -> Result<()> {
        let may_be_blob = self.negative.may_have_blobs(&self.conn, parent)?;
        self.saved_room.removes();
        self.change(|conn| dentry::delete(conn, parent, name, may_be_blob))
    }

    fn write_data(&mut self, inode: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()> {
        let (chunk_bytes, is_ours) = (self.chunk_bytes, self.numbers.is_ours(inode.ino));
        let saves = self.has_checkpoint()?;
        let saved = if saves { old_pieces::most_bytes(data.len()) } else { 0 };
        self.disk_reserve.add(&self.conn, data.len().saturating_add(saved))?;
        let notes = self.row_notes.clone();
        self.change(|conn| {
            let chunks = Chunks::to_change(conn, inode.ino, chunk_bytes, is_ours);
            chunks.saving_pieces(saves).noting(notes.as_ref()).write(inode, offset, data)
        })
    }

    fn truncate(&mut self, inode: &mut InodeRow, size: u64) -> Result<()> {
        let (chunk_bytes, is_ours) = (self.chunk_bytes, self.numbers.is_ours(inode.ino));
        if size < inode.size {
            self.require_saved_room(inode.ino, Some(inode.size - size), size)?;
        }
        self.change(|conn| {
            Chunks::to_change(conn, inode.ino, chunk_bytes, is_ours).truncate(inode, size)
        })
    }

    fn put_copy_up(&mut self, ino: Ino, pending: Option<CopyUp>) -> Result<()> {
        self.change(|conn| copy_up::put(conn, ino, pending))
    }

    fn put_symlink(&mut self, ino: Ino, target: &[u8]) -> Result<()> {
        self.change(|conn| symlink::put(conn, ino, target))
    }

    fn add_whiteout(&mut self, path: &MergedPath, now: Time) -> Result<()> {
        let path_bytes = path.as_bytes().len();
        self.disk_reserve.add(&self.conn, path_bytes.saturating_mul(WHITEOUT_COPIES))?;
        self.negative.hides(path.parent());
        if self.change(|conn| whiteout::add(conn, path, now))? {
            self.count(Usage::default(), Usage::of_whiteouts(whiteout_files(path_bytes)));
        }
        Ok(())
    }

    fn remove_whiteout(&mut self, path: &MergedPath) -> Result<Option<i64>> {
        if !self.negative.may_hide(&self.conn, path.parent())? {
            return Ok(None);
        }
        let created_at = self.change(|conn| whiteout::remove(conn, path))?;
        if created_at.is_some() {
            let files = whiteout_files(path.as_bytes().len());
            self.count(Usage::of_whiteouts(files), Usage::default());
        }
        Ok(created_at)
    }

    fn remove_whiteouts_below(&mut self, path: &MergedPath) -> Result<()> {
        let before = self.whiteouts_usage(&[path])?;
        self.change(|conn| whiteout::remove_below(conn, path))?;
        self.count(before, Usage::default());
        Ok(())
    }

    fn move_whiteouts_below(&mut self, from: &MergedPath, to: &MergedPath) -> Result<()> {
        self.negative.may_hide_anything();
        let moved = whiteout::below(&self.conn, from, None)?.bytes;
        let moved = usize::try_from(moved).unwrap_or(usize::MAX);
        self.disk_reserve.add(&self.conn, moved.saturating_mul(WHITEOUT_COPIES))?;
        let before = self.whiteouts_usage(&[from, to])?;
        self.change(|conn| whiteout::move_below(conn, from, to))?;
        self.count(before, self.whiteouts_usage(&[from, to])?);
        Ok(())
    }

    fn put_redirect(&mut self, ino: Ino, base: &BasePath) -> Result<()> {
        self.change(|conn| redirect::put(conn, ino, base))
    }

    fn remove_redirect(&mut self, ino: Ino) -> Result<()> {
        self.change(|conn| redirect::delete(conn, ino))
    }

    fn put_opaque(&mut self, dir: Ino, now: Time) -> Result<()> {
        self.change(|conn| opaque::put(conn, dir, now.secs))
    }

    fn remove_opaque(&mut self, dir: Ino) -> Result<()> {
        self.change(|conn| opaque::delete(conn, dir))
    }

    fn hide_link(&mut self, base: FileId, now: Time) -> Result<()> {
        self.change(|conn| link::hide(conn, base, now))
    }

    fn count_hidden(&mut self, base: FileId, hidden: u32) -> Result<()> {
        self.change(|conn| link::count(conn, base, hidden))
    }

    fn put_original(&mut self, original: &Original, content: Option<&[u8]>) -> Result<bool> {
        // If the disk is full, the change succeeds without its original.
        let bytes = content.map_or(0, <[u8]>::len).saturating_add(original.path.as_bytes().len());
        if self.disk_reserve.add(&self.conn, bytes.saturating_mul(2)).is_err() {
            return Ok(false);
        }
        self.change(|conn| original::put(conn, original, content))
    }

    fn remove_originals(&mut self, path: &BasePath) -> Result<u64> {
        self.change(|conn| original::remove(conn, path))
    }

    fn rename_originals(&mut self, old: &BasePath, new: &BasePath) -> Result<()> {
        self.change(|conn| original::rename(conn, old, new))
    }

    fn show_origins(&mut self, shown: bool) -> Result<()> {
        self.change(|conn| origin::show(conn, shown))
    }

    fn growth(&self) -> UsageDelta {
        self.growth.unwrap_or_default()
    }

    fn put_limits(&mut self, limits: Limits) -> Result<()> {
        self.change(|conn| quota::put_limits(conn, limits))
    }

    fn create_checkpoint(&mut self, new: &NewCheckpoint) -> Result<MadeCheckpoint> {
        let next_ino = Ino(self.numbers.last());
        let had_any = self.has_checkpoint()?;
        if had_any && checkpoint::has_name(&self.conn, new.name.as_deref())? {
            return Ok(MadeCheckpoint::NameTaken);
        }
        // A session in memory has no log that tells.
        if had_any
            && new.reuses
            && !self.disk_reserve.is_in_memory()
            && let Some(newest) = checkpoint::unchanged(&self.conn)?
        {
            return self.change(|conn| checkpoint::reuse(conn, newest, new));
        }
        // A later WRITE is a row of its own.
        self.last_audit = LastAuditRow::default();
        let made = self.change(|conn| {
            if !old_rows::is_created(conn)? {
                checkpoint::create_tables(conn)?;
            }
            if !had_any {
                old_rows::watch(conn)?;
            }
            let made = checkpoint::insert(conn, new, next_ino)?;
            if made.kind != CheckpointKind::Manual {
                checkpoint::remove_surplus(conn, made.time, new.needed)?;
            }
            Ok(MadeCheckpoint::Made(made))
        });
        self.has_checkpoint = None;
        made
    }

    fn put_copied(&mut self, file: Option<Ino>) -> Result<()> {
        match self.has_checkpoint()? {
            true => self.change(|conn| old_rows::put_saving_content(conn, file)),
            false => Ok(()),
        }
    }

    fn prepare_restore(&mut self, restore: &RestoreRequest) -> Result<Option<RestoreOutcome>> {
        match self.check_restore(restore)? {
            Ok(_) => self.create_safety_checkpoint(restore).map(|_| None),
            Err(refused) => Ok(Some(refused)),
        }
    }

    fn restore(
        &mut self,
        restore: &RestoreRequest,
        paths: Option<&RestorePaths>,
    ) -> Result<RestoreOutcome> {
        let to = match self.check_restore(restore)? {
            Ok(to) => to,
            Err(refused) => return Ok(refused),
        };
        // Something may have changed since the preparation.
        let before = self.create_safety_checkpoint(restore)?;
        let usage = self.counted_usage()?;
        self.has_changed = true;
        self.saved_room.restores(to.id);
        let (conn, dentry_ids, disk) = (&self.conn, &mut self.dentry_ids, &mut self.disk_reserve);
        let mut needs = RestoreNeeds {
            allocate_id: &mut || dentry_ids.allocate(conn),
            room: &mut |bytes| disk.add(conn, usize::try_from(bytes).unwrap_or(usize::MAX)),
        };
        let rows = old_restore::restore(conn, (&to, paths), restore.time, &mut needs);
        let rows = rows.and_then(|rows| copy_up::narrow(conn, self.chunk_bytes).map(|()| rows));
        if let Err(error) = &rows {
            self.saved_room.note(error);
            self.failure = Some(error.clone());
        }
        let rows = rows?;
        self.negative.clear();
        self.last_audit = LastAuditRow::default();
        if let (Some(growth), Some(before)) = (&mut self.growth, usage) {
            *growth += quota::count(&self.conn, self.chunk_bytes)?;
            *growth += -before;
        }
        Ok(RestoreOutcome::Restored(RestoredTree { to, before, rows }))
    }

    fn remove_checkpoint(&mut self, id: CheckpointId) -> Result<bool> {
        if !self.has_checkpoint()? {
            return Ok(false);
        }
        self.has_checkpoint = None;
        self.change(|conn| {
            let removed = removed_checkpoints::mark(conn, id)?;
            if !checkpoint::any(conn)? {
                old_rows::unwatch(conn)?;
            }
            Ok(removed)
        })
    }

    fn has_unsaved(&mut self, content: UnsavedContent, most: u64) -> Result<bool> {
        let chunks = most / self.chunk_bytes;
        Ok(self.has_checkpoint()? && old_content::has_more_unsaved(&self.conn, content, chunks)?)
    }

    fn save_content(
        &mut self,
        content: UnsavedContent,
        most: usize,
    ) -> Result<Option<UnsavedContent>> {
        self.disk_reserve.add(&self.conn, most)?;
        let chunks = (most as u64 / self.chunk_bytes).max(1);
        self.change(|conn| old_content::save(conn, content, chunks))
    }

    fn is_changed_since(&mut self, seen: i64) -> Result<bool> {
        checkpoint::is_changed_since(&self.conn, seen)
    }

    fn keep_checkpoint(&mut self, id: CheckpointId) -> Result<bool> {
        Ok(self.has_checkpoint()? && self.change(|conn| checkpoint::keep(conn, id))?)
    }

    fn free_removed(&mut self, most: u32) -> Result<bool> {
        self.change(|conn| removed_checkpoints::hand_over_piece(conn, most))
    }

    fn bound_audit(&mut self, applies: bool) {
        self.audit_bound.applies = applies;
    }

    fn prune_audit(&mut self, upto: i64, now: Time, most: u32) -> Result<u64> {
        let upto = upto.min(prune::last_prunable(&self.conn, now)?);
        let mut bound = std::mem::take(&mut self.audit_bound);
        let pruned = self.change(|conn| bound.prune(conn, upto, most));
        self.audit_bound = bound;
        pruned
    }

    fn record(&mut self, row: &AuditRow) -> Result<()> {
        if self.disk_reserve.is_in_memory() {
            // The log of a session in memory would end with the server.
            return Ok(());
        }
        let mut last_audit = std::mem::take(&mut self.last_audit);
        let result = if let Some(length) = last_audit.joined(row) {
            self.change(|conn| last_audit.lengthen(conn, length))
        } else {
            let client = self.clients.text(row.client);
            let mut bound = std::mem::take(&mut self.audit_bound);
            let result = self.change(|conn| {
                last_audit.write(conn, row, &client)?;
                bound.added(conn, audit_bound::bytes_of(row, &client))
            });
            self.audit_bound = bound;
            result
        };
        self.last_audit = last_audit;
        result
    }
}
