//! Room for what is saved for checkpoints: removing, cutting and replacing never fail for want of
//! it.
//!
//! What such a change takes away is saved through the WAL, whose room on an almost full disk is
//! reserved for deleting. So the room is looked at before, and where it lacks, or SQLite finds the
//! disk full, checkpoints give way, and the change is made again: first the automatic checkpoints
//! go, the oldest first, but not those of the last restore; then the others become incomplete, and
//! nothing is saved until the next checkpoint. A newest `safety` one stays whole: it is the way
//! back of a discard, restore or merge. A restore only lets automatic ones go: what it
//! replaces must not be lost.

use rusqlite::{Connection, OptionalExtension};

use crate::delta::{
    Checkpoint, CheckpointId, CheckpointKind, Incomplete, Ino, Result, StoreError, StoreErrorKind,
    WriteTxn, Writer,
};

use super::batch::OpenBatch;
use super::writer::SqliteWriter;
use crate::delta::sqlite::table::replica;
use crate::delta::sqlite::table::{
    checkpoint, checkpoint_space, incomplete, old_content, removed_checkpoints, value,
};

/// Saved rows of a removed checkpoint that one transaction frees.
const PIECE_ROWS: u32 = 256;

/// Upper bound of what is saved besides content, in bytes.
const ROWS_BYTES: u64 = 4 << 10;

/// What a batch needs room for.
#[derive(Debug, Default)]
pub(super) struct SavedRoom {
    /// Whether the current operation takes something away.
    removes: bool,
    /// Whether an earlier operation of the batch does.
    removed: bool,
    /// The checkpoint that the batch restores.
    restores: Option<CheckpointId>,
    /// Whether a change that takes something away found no room.
    lacks: bool,
}

impl SavedRoom {
    pub fn begin_operation(&mut self) {
        self.removed |= std::mem::take(&mut self.removes);
    }

    /// The operation takes something away.
    pub fn removes(&mut self) {
        self.removes = true;
    }

    /// The operation restores a checkpoint.
    pub fn restores(&mut self, to: CheckpointId) {
        (self.removes, self.restores) = (true, Some(to));
    }

    /// A change of the operation failed.
    pub fn note(&mut self, error: &StoreError) {
        self.lacks |= self.removes && error.kind == StoreErrorKind::Full;
    }

    /// The commit failed.
    pub fn note_commit(&mut self, error: &StoreError) {
        self.removes |= self.removed;
        self.note(error);
    }
}

/// A step that makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoomStep {
    /// Free what removed checkpoints leave.
    Free,
    /// Remove a checkpoint.
    Remove(CheckpointId),
    /// Save nothing until the next checkpoint.
    GiveUp,
}

impl OpenBatch {
    /// Fails if what the operation takes away of a file beyond the byte `kept` might not be saved
    /// without reserved space; without `bytes`, the file's size is looked up.
    pub(super) fn require_saved_room(
        &mut self,
        ino: Ino,
        bytes: Option<u64>,
        kept: u64,
    ) -> Result<()> {
        self.saved_room.removes();
        if !self.has_checkpoint()? {
            return Ok(());
        }
        let bytes = bytes.map_or_else(|| file_bytes(&self.conn, ino), Ok)?;
        let most = bytes.saturating_add(ROWS_BYTES);
        if self.disk_reserve.can_save(&self.conn, most)? {
            return Ok(());
        }
        let first = kept.div_ceil(self.chunk_bytes);
        let Some(unsaved) = old_content::unsaved_bytes(&self.conn, ino, first)? else {
            return Ok(());
        };
        if self.disk_reserve.can_save(&self.conn, unsaved.saturating_add(ROWS_BYTES))? {
            return Ok(());
        }
        let error = StoreError::full("no room to save what is removed for a checkpoint");
        self.saved_room.note(&error);
        Err(error)
    }
}

/// The size of a file, in bytes.
fn file_bytes(conn: &Connection, ino: Ino) -> Result<u64> {
    let mut size = conn.prepare_cached("SELECT size FROM fs_inode WHERE ino = ?1")?;
    let size = size.query_row([ino.0.cast_signed()], |row| value::unsigned(row, 0));
    Ok(size.optional()?.unwrap_or(0))
}

/// The next step that makes room; `None` if nothing does. `restores` is a checkpoint that is being
/// restored.
fn next_step(conn: &Connection, restores: Option<CheckpointId>) -> Result<Option<RoomStep>> {
    if removed_checkpoints::any(conn)? {
        return Ok(Some(RoomStep::Free));
    }
    let all = checkpoint::all(conn)?;
    let needed = checkpoint_space::of_last_restore(conn)?;
    let newest = all.last().map(|newest| newest.id);
    let keeps_newest = ends_with_safety(&all);
    for one in all.iter().filter(|one| one.is_automatic()) {
        let is_needed = needed.contains(&Some(one.id))
            || restores == Some(one.id)
            || keeps_newest && newest == Some(one.id);
        // Without the newest, less may have to be saved.
        let helps =
            !is_needed && (newest == Some(one.id) || removed_checkpoints::frees_any(conn, one.id)?);
        if helps {
            return Ok(Some(RoomStep::Remove(one.id)));
        }
    }
    let gives_up = may_give_up(&all, restores) && incomplete::is_saving(conn)?;
    Ok(gives_up.then_some(RoomStep::GiveUp))
}

/// Whether the checkpoints may become incomplete.
fn may_give_up(all: &[Checkpoint], restores: Option<CheckpointId>) -> bool {
    restores.is_none() && !all.is_empty() && !ends_with_safety(all)
}

/// Whether the newest checkpoint may have been made for the very change that has no room: a merge
/// or a discard names it as the way back.
fn ends_with_safety(all: &[Checkpoint]) -> bool {
    all.last().is_some_and(|newest| newest.kind == CheckpointKind::Safety)
}

impl SqliteWriter {
    /// Whether the batch found no room for what it takes away, and some can be made.
    pub(super) fn could_make_room(&self) -> bool {
        let (room, conn) = (&self.batch.saved_room, &self.batch.conn);
        room.lacks && next_step(conn, room.restores).is_ok_and(|step| step.is_some())
    }

    /// Takes the next step that makes room, outside a batch; returns whether there was one.
    pub(super) fn take_room_step(&mut self) -> Result<bool> {
        let restores = self.batch.saved_room.restores;
        let step = next_step(&self.batch.conn, restores)?;
        let done = match step {
            None => return Ok(false),
            Some(RoomStep::Free) => self.free_removed_rows(),
            Some(RoomStep::Remove(id)) => self.remove_for_room(id),
            Some(RoomStep::GiveUp) => return self.give_up_saving(),
        };
        match done {
            // Freeing needs some room too.
            Err(error) if error.kind == StoreErrorKind::Full => {
                match may_give_up(&checkpoint::all(&self.batch.conn)?, restores) {
                    true => self.give_up_saving(),
                    false => Err(error),
                }
            }
            done => done.map(|()| true),
        }
    }

    fn remove_for_room(&mut self, id: CheckpointId) -> Result<()> {
        self.in_batch(|batch| batch.remove_checkpoint(id))?;
        tracing::warn!(id = id.0, "removed a checkpoint: no room to save what is removed for it");
        self.free_removed_rows()
    }

    fn free_removed_rows(&mut self) -> Result<()> {
        while self.in_batch(|batch| batch.free_removed(PIECE_ROWS))? {}
        Ok(())
    }

    fn give_up_saving(&mut self) -> Result<bool> {
        let mark = |conn: &Connection| incomplete::mark_all(conn, Incomplete::NoRoom);
        let count = self.in_batch(|batch| mark(&batch.conn))?;
        if count > 0 {
            tracing::warn!(
                count,
                "no room to save what is removed: the checkpoints are incomplete, and nothing is \
                 saved for them until the next one"
            );
        }
        Ok(count > 0)
    }

    /// Runs `work` in a batch of its own.
    fn in_batch<T>(&mut self, work: impl FnOnce(&mut OpenBatch) -> Result<T>) -> Result<T> {
        self.begin(false)?;
        // Another store gets the change with the next batch.
        let changed = replica::put_mark(&self.batch.conn, None);
        match changed.and_then(|()| work(&mut self.batch)) {
            Ok(value) => self.commit().map(|()| value),
            Err(error) => self.abort().and(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::sqlite::txn::writer_token::WriterToken;
    use crate::delta::sqlite::{CreateOptions, Host, Session};
    use crate::delta::{CheckpointKind, InodeRow, MadeCheckpoint, NewCheckpoint};
    use crate::vfs::{Device, FileKind, Time};

    const FILE_BYTES: usize = 1 << 20;

    fn writer(session: &Session) -> SqliteWriter {
        let conn = session.first.lock().take().unwrap();
        let token = WriterToken::take(&session.writing).unwrap();
        SqliteWriter::new(session, conn, token).unwrap()
    }

    /// Makes a change as the worker does; returns it with the number of steps that made room.
    fn change<T>(
        writer: &mut SqliteWriter,
        mut work: impl FnMut(&mut dyn WriteTxn) -> Result<T>,
    ) -> (Result<T>, u32) {
        let mut steps = 0;
        loop {
            writer.begin(false).unwrap();
            let done = work(writer.txn());
            let done = match done {
                Ok(value) => writer.commit().map(|()| value),
                Err(error) => Err(error),
            };
            if done.is_ok() || !writer.lacks_room() {
                writer.abort().unwrap();
                return (done, steps);
            }
            writer.abort().unwrap();
            assert!(writer.make_room().unwrap());
            steps += 1;
        }
    }

    fn put(writer: &mut SqliteWriter, file: Option<InodeRow>, with: u8) -> Result<InodeRow> {
        let put = change(writer, |txn| {
            let mut row = match &file {
                Some(row) => row.clone(),
                None => InodeRow {
                    ino: txn.allocate_ino()?,
                    kind: FileKind::Regular,
                    mode: 0o640,
                    nlink: 1,
                    uid: 0,
                    gid: 0,
                    size: 0,
                    rdev: Device::default(),
                    atime: Time::default(),
                    mtime: Time::default(),
                    ctime: Time::default(),
                    subdirs: None,
                    holes: 0,
                    create_verifier: None,
                    copy_up: None,
                    origin: None,
                },
            };
            txn.put_inode(&row)?;
            txn.write_data(&mut row, 0, &vec![with; FILE_BYTES])?;
            txn.put_inode(&row)?;
            Ok(row)
        });
        put.0
    }

    fn checkpoint(writer: &mut SqliteWriter, kind: CheckpointKind) -> CheckpointId {
        let new = NewCheckpoint { kind, reuses: false, ..NewCheckpoint::before("x".to_owned()) };
        match change(writer, |txn| txn.create_checkpoint(&new)).0.unwrap() {
            MadeCheckpoint::Made(made) => made.id,
            other => panic!("{other:?}"),
        }
    }

    fn limit_pages(writer: &SqliteWriter, more: i64) {
        let conn = &writer.batch.conn;
        let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let pages = pages + more;
        conn.pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .unwrap();
    }

    fn number(writer: &SqliteWriter, sql: &str) -> i64 {
        writer.batch.conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn incomplete(writer: &SqliteWriter) -> Vec<Option<Incomplete>> {
        checkpoint::all(&writer.batch.conn).unwrap().iter().map(|one| one.incomplete).collect()
    }

    #[test]
    fn what_is_removed_finds_the_room_that_checkpoints_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.db");
        let host = Host::current().unwrap();
        let session = Session::create(&path, &CreateOptions::default(), &host).unwrap();
        let mut writer = writer(&session);
        let old: Vec<_> = (0..2).map(|_| put(&mut writer, None, 1).unwrap()).collect();
        checkpoint(&mut writer, CheckpointKind::Manual);
        let newer = put(&mut writer, None, 2).unwrap();
        let automatic = checkpoint(&mut writer, CheckpointKind::Tool);
        put(&mut writer, Some(newer), 3).unwrap();
        checkpoint(&mut writer, CheckpointKind::Tool);
        limit_pages(&writer, 0);
        // Adding finds no room, and takes none from checkpoints.
        let added = put(&mut writer, None, 4);
        assert_eq!(added.map_err(|error| error.kind).unwrap_err(), StoreErrorKind::Full);
        assert_eq!(checkpoint::all(&writer.batch.conn).unwrap().len(), 3);
        // The content that was saved for an automatic one makes room for that of a removed file.
        let (done, steps) = change(&mut writer, |txn| txn.delete_inode(old[0].ino));
        done.unwrap();
        assert_eq!((steps, incomplete(&writer)), (1, vec![None; 2]));
        assert!(checkpoint::get(&writer.batch.conn, automatic).unwrap().is_none());
        let saved = "SELECT sum(length(data)) FROM acetate_old_fs_data";
        assert_eq!(number(&writer, saved), FILE_BYTES as i64);
        // Then none is left, and the others give way.
        limit_pages(&writer, 0);
        while put(&mut writer, None, 5).is_ok() {}
        let (done, _) = change(&mut writer, |txn| txn.delete_inode(old[1].ino));
        done.unwrap();
        assert_eq!(incomplete(&writer), [Some(Incomplete::NoRoom)]);
        assert_eq!(number(&writer, saved), FILE_BYTES as i64);
        // There is room again, and it is saved for the next one.
        limit_pages(&writer, 9999);
        let next = put(&mut writer, None, 6).unwrap();
        checkpoint(&mut writer, CheckpointKind::Manual);
        assert_eq!(change(&mut writer, |txn| txn.delete_inode(next.ino)).1, 0);
        assert_eq!(incomplete(&writer), [Some(Incomplete::NoRoom), None]);
        assert_eq!(number(&writer, saved), 2 * FILE_BYTES as i64);
        writer.close().unwrap();
    }
}
