//! The writing connection, and its four promises; STORAGE, tests and comments cite their numbers.
//!
//! **P1: a commit that returned survives the death of the process.** Its frames are in the WAL,
//! in the kernel's page cache. With `synchronous = NORMAL` a commit syncs nothing.
//!
//! **P2: a durable commit that returned survives a power loss, with every commit before it.**
//! With FULL the commit syncs the whole WAL, so all frames before its own. Frames that left the
//! WAL were checkpointed: a checkpoint syncs the WAL before it copies and the database after it,
//! and the WAL starts over only when all of it was copied. So every earlier commit is in the
//! synced WAL or in the synced database.
//!
//! **P3: frames of an earlier process are rewritten before the first durable commit**
//! ([`frames::rewrite_frames`]). A sync that failed in that process was reported to it alone, and
//! no later sync writes those pages.
//!
//! **P4: a failed sync is never missed.** The kernel reports it once to each open file, and then
//! treats the pages as clean. SQLite's automatic checkpoints hide errors, so they are off. The
//! writer checkpoints, mostly on another thread; a failure fails every later batch. After a
//! failure, neither the writer nor its tasks checkpoint when they close
//! (`no_checkpoint_on_close`): the WAL has the only copy of pages that the failed sync lost.
//! Exception: `begin_writing` commits a synced transaction of its own before a change. If its
//! sync fails while no earlier commit is unsynced, only that transaction is lost: the change fails,
//! and the next one repeats it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::delta::{
    Compacted, Poison, Result, StoreError, StoreErrorKind, UsageDelta, WriteTxn, Writer,
};

use super::batch::OpenBatch;
use super::negative_cache::NegativeCache;
use super::saved_room::SavedRoom;
use super::writer_token::WriterToken;
use crate::delta::sqlite::file::connect::BUSY_WAIT;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{OpenMode, Session};
use crate::delta::sqlite::file::{connect, epoch, rewrite};
use crate::delta::sqlite::table::audit_bound::AuditBound;
use crate::delta::sqlite::table::dentry_ids::DentryIds;
use crate::delta::sqlite::table::inode_numbers::InodeNumbers;
use crate::delta::sqlite::table::op::{ClientTexts, LastAuditRow};
use crate::delta::sqlite::table::replica;
use crate::delta::sqlite::table::{dentry, meta, quota, tree_sum};
use crate::delta::sqlite::wal::disk_reserve::DiskReserve;
use crate::delta::sqlite::wal::frames;
use crate::delta::sqlite::wal::schedule::Wal;
use crate::wal_shim;

/// The writing connection.
pub struct SqliteWriter {
    pub(super) batch: OpenBatch,
    epoch: Arc<AtomicU64>,
    pub(super) boot_id: Option<String>,
    read_only: bool,
    /// See [`epoch::late_op`](crate::delta::sqlite::file::epoch::late_op).
    late_op: Option<i64>,
    /// `acetate_meta.clean`.
    pub(super) clean: bool,
    /// Whether commits currently sync (FULL).
    full: bool,
    /// Whether the open batch is durable.
    durable: bool,
    /// Whether the WAL may hold unsynced commits.
    unsynced: bool,
    /// Whether the batch must not block its thread: [`Writer::try_begin`].
    is_inline: bool,
    /// Whether the WAL is to be checkpointed before the next batch, because the disk was full.
    checkpoint_owed: bool,
    poison: Poison,
    pub(super) wal: Wal,
    _token: WriterToken,
    lock: Option<Arc<SessionLock>>,
}

impl SqliteWriter {
    pub fn new(session: &Session, mut conn: Connection, token: WriterToken) -> Result<Self> {
        let (read_only, poison) = (session.mode != OpenMode::Serve, Poison::default());
        let (path, threads, progress) = (&session.path, &session.background, &session.wal);
        let wal = Wal::of(path, &mut conn, read_only, threads, &poison, progress)?;
        let clean = epoch::is_clean(&conn)?;
        Ok(Self {
            epoch: Arc::clone(&session.epoch),
            boot_id: session.boot_id.clone(),
            read_only,
            late_op: session.late_op,
            clean,
            full: true,
            durable: true,
            // An earlier process may have died with unsynced commits in the WAL.
            unsynced: !clean || wal.is_inherited(),
            is_inline: false,
            checkpoint_owed: false,
            poison,
            wal,
            batch: OpenBatch {
                chunk_bytes: session.config.chunk_bytes,
                numbers: InodeNumbers::load(&conn)?,
                dentry_ids: DentryIds::load(&conn)?,
                negative: NegativeCache::new(),
                conn,
                last_audit: LastAuditRow::default(),
                last_audit_before: LastAuditRow::default(),
                clients: ClientTexts::new(),
                audit_bound: AuditBound::default(),
                has_checkpoint: None,
                saved_room: SavedRoom::default(),
                disk_reserve: DiskReserve::of(&session.path, session.memory.clone()),
                has_changed: false,
                had_changed: false,
                growth: None,
                row_notes: session.row_notes.clone(),
                failure: None,
            },
            _token: token,
            lock: session.lock.clone(),
        })
    }

    pub(super) fn run(&self, sql: &str) -> Result<()> {
        self.batch.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Commits the transaction; `wal_shim` writes it to the WAL in one or a few large writes.
    pub(super) fn run_commit(&self) -> Result<()> {
        wal_shim::committing(|| self.run("COMMIT"))
    }

    pub(super) fn set_full(&mut self, full: bool) -> Result<()> {
        if self.full != full {
            connect::set_full(&self.batch.conn, full)?;
            self.full = full;
        }
        Ok(())
    }

    /// Rewrites frames of an earlier process, so that the next sync includes them.
    pub(super) fn take_over_wal(&mut self) -> Result<()> {
        let done = self.wal.rewrite_inherited(&self.batch.conn);
        done.inspect_err(|error| {
            if error.kind.leaves_doubt() {
                self.poison.set(error);
            }
        })
    }

    /// Records that everything committed is synced.
    pub(super) fn note_sync(&mut self) {
        self.unsynced = false;
        self.wal.note_sync();
    }

    /// Rolls the transaction back, if SQLite has not done so itself.
    pub(super) fn undo(&mut self) {
        if self.batch.is_changed() {
            self.batch.rolled_back(true);
        }
        if !self.batch.conn.is_autocommit() {
            // Fails only if there is nothing left to roll back.
            let _ = self.batch.conn.execute_batch("ROLLBACK");
        }
    }

    /// Fails if SQLite has rolled the transaction back, as it does when the disk is full.
    fn require_transaction(&self) -> Result<()> {
        if !self.batch.conn.is_autocommit() {
            return Ok(());
        }
        let lost = || StoreError::io("the transaction was given up");
        Err(self.batch.failure.clone().unwrap_or_else(lost))
    }

    /// Fails if no batch may begin; rolls back what the last one left open.
    fn check_begin(&mut self) -> Result<()> {
        if self.read_only {
            return Err(StoreError::read_only("opened to be read"));
        }
        self.poison.check()?;
        if !self.batch.conn.is_autocommit() {
            self.undo();
        }
        Ok(())
    }

    /// Initializes the state of a new batch.
    fn begun(&mut self, durable: bool, is_inline: bool) {
        self.durable = durable;
        self.is_inline = is_inline;
        self.batch.begin();
        self.batch.last_audit = LastAuditRow::default();
    }

    /// Checkpoints if a commit failed because the disk was full.
    fn copy_if_owed(&mut self) {
        if std::mem::take(&mut self.checkpoint_owed) {
            // A failure makes the next batch fail.
            let _ = self.poison.keep(self.wal.checkpoint_now(&self.batch.conn));
        }
    }

    /// Truncates the WAL's file once commits are no longer large. `is_copied` says that the whole
    /// WAL was just copied.
    fn cut_wal_if_long(&mut self, is_copied: bool) -> Result<()> {
        if !self.wal.prepare_cut(&self.batch.conn, is_copied)? {
            return Ok(());
        }
        match self.in_synced(meta::count_sync) {
            // Nothing is lost; the WAL restarts another time.
            Err(error) if !error.kind.leaves_doubt() => Ok(()),
            done => done,
        }
    }

    /// Adds the writer's own row changes to the batch.
    fn before_commit(&mut self) -> Result<()> {
        if self.durable && self.unsynced {
            meta::count_sync(&self.batch.conn)?;
        }
        Ok(())
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        // The connection of the writer is the last one to close.
        self.wal.stop();
        if self.poison.is_set() {
            // Fails only for an unusable connection, which cannot checkpoint either.
            let _ = connect::no_checkpoint_on_close(&self.batch.conn);
        } else if let Some(lock) = &self.lock {
            lock.release_files();
        }
    }
}

impl Writer for SqliteWriter {
    fn begin(&mut self, durable: bool) -> Result<()> {
        self.check_begin()?;
        self.take_over_wal()?;
        self.copy_if_owed();
        self.poison.check()?;
        self.poison.keep(self.wal.make_room(&self.batch.conn, &mut self.batch.disk_reserve))?;
        self.batch.disk_reserve.check_memory(&self.batch.conn)?;
        if (self.clean || self.batch.numbers.due().is_some())
            && let Err(error) = self.begin_writing()
        {
            // The failed sync may also have lost earlier commits.
            if self.unsynced && error.kind.leaves_doubt() {
                self.poison.set(&error);
            }
            return Err(error);
        }
        self.set_full(durable)?;
        self.run("BEGIN IMMEDIATE")?;
        self.begun(durable, false);
        Ok(())
    }

    fn try_begin(&mut self, durable: bool) -> Result<bool> {
        self.check_begin()?;
        let has_first = self.clean || self.batch.numbers.due().is_some() || self.checkpoint_owed;
        if has_first || !self.wal.is_ready() {
            return Ok(false);
        }
        if self.wal.wants_room(&self.batch.conn, &mut self.batch.disk_reserve)? {
            return Ok(false);
        }
        self.set_full(durable)?;
        self.batch.conn.busy_timeout(Duration::ZERO)?;
        let begun = self.run("BEGIN IMMEDIATE");
        self.batch.conn.busy_timeout(BUSY_WAIT)?;
        match begun {
            Err(error) if error.kind == StoreErrorKind::Busy => return Ok(false),
            begun => begun?,
        }
        self.begun(durable, true);
        Ok(true)
    }

    fn next(&mut self) {
        self.batch.begin_operation();
    }

    fn has_changed(&self) -> bool {
        self.batch.has_changed
    }

    fn check_batch(&self) -> Result<()> {
        self.require_transaction()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.require_transaction()?;
        self.batch.begin_operation();
        self.batch.last_audit_before = self.batch.last_audit.clone();
        self.run("SAVEPOINT operation")
    }

    fn release(&mut self) -> Result<()> {
        self.require_transaction()?;
        self.run("RELEASE operation")
    }

    fn roll_back(&mut self) -> Result<()> {
        self.require_transaction()?;
        self.run("ROLLBACK TO operation")?;
        self.batch.rolled_back(false);
        self.batch.last_audit = self.batch.last_audit_before.clone();
        self.run("RELEASE operation")
    }

    fn commit(&mut self) -> Result<()> {
        if let Err(error) = self.require_transaction() {
            self.undo();
            return Err(error);
        }
        if let Err(error) = self.before_commit().and_then(|()| self.run_commit()) {
            self.undo();
            self.batch.saved_room.note_commit(&error);
            if error.kind == StoreErrorKind::Full {
                // A checkpoint may let the WAL restart, if the database has space: deleting must
                // work.
                self.checkpoint_owed = true;
                if !self.is_inline {
                    self.copy_if_owed();
                }
            }
            return Err(error);
        }
        self.wal.note_length(&self.batch.conn);
        self.batch.audit_bound.begin_batch();
        if !self.durable {
            self.unsynced = true;
            return Ok(());
        }
        // If a failed write is reported only once, a background task may have received the error.
        self.poison.check()?;
        self.note_sync();
        Ok(())
    }

    fn abort(&mut self) -> Result<()> {
        self.undo();
        Ok(())
    }

    fn txn(&mut self) -> &mut dyn WriteTxn {
        &mut self.batch
    }

    fn lacks_room(&self) -> bool {
        self.could_make_room()
    }

    fn make_room(&mut self) -> Result<bool> {
        self.take_room_step()
    }

    fn poison(&self) -> Poison {
        self.poison.clone()
    }

    fn maintenance_at(&self) -> Option<Instant> {
        let owed = self.checkpoint_owed.then(Instant::now);
        owed.or_else(|| self.wal.maintenance_at()).filter(|_| !self.poison.is_set())
    }

    fn maintenance(&mut self) {
        if self.take_over_wal().is_err() {
            return;
        }
        self.copy_if_owed();
        if self.poison.is_set() {
            return;
        }
        let done = self.wal.checkpoint_if_due(&self.batch.conn);
        // A failure makes the next batch fail.
        let done = done.and_then(|is_copied| self.cut_wal_if_long(is_copied));
        let _ = self.poison.keep(done);
    }

    fn compact(&mut self) -> Result<Compacted> {
        if self.read_only {
            return Err(StoreError::read_only("opened to be read"));
        }
        // The WAL cannot be truncated while a background checkpoint runs.
        self.wal.wait();
        self.poison.check()?;
        // Its commit is synced, and with it everything before.
        self.set_full(true)?;
        // Another store knows rows by their ids, and these change.
        replica::put_mark(&self.batch.conn, None)?;
        let done = rewrite::by_writer(&mut self.batch.conn, self.wal.session());
        self.unsynced &= done.is_err();
        let done = done.and_then(|rewritten| {
            self.poison.keep(frames::checkpoint(&self.batch.conn, "TRUNCATE"))?;
            self.poison.check().map(|()| rewritten.finish(self.wal.session()))
        });
        self.wal.note_length(&self.batch.conn);
        done
    }

    fn count_usage(&mut self) -> Result<UsageDelta> {
        let sum = quota::count(&self.batch.conn, self.batch.chunk_bytes)?;
        self.batch.audit_bound.load(&self.batch.conn)?;
        self.batch.growth = Some(UsageDelta::default());
        Ok(sum)
    }

    fn unsynced_bytes(&self) -> u64 {
        if self.unsynced { self.wal.unsynced_bytes() } else { 0 }
    }

    fn sync(&mut self) -> Result<()> {
        self.poison.check()?;
        if self.read_only || !self.unsynced {
            return Ok(());
        }
        self.in_synced(meta::count_sync)?;
        self.poison.check()
    }

    fn advance_epoch(&mut self) -> u64 {
        let next = self.epoch.load(Ordering::Acquire) + 1;
        self.undo();
        // If the file cannot store the epoch, replies still carry it.
        let stored = self.in_synced(|conn| epoch::put(conn, next));
        if let Err(error) = stored {
            tracing::warn!(%error, "the session file does not take the new epoch");
        }
        self.epoch.store(next, Ordering::Release);
        next
    }

    fn rest(&mut self) {
        self.batch.rest();
    }

    fn close(&mut self) -> Result<()> {
        self.undo();
        if self.read_only {
            return Ok(());
        }
        self.poison.check()?;
        if !self.clean {
            let (mark, late_op) = (self.batch.numbers.last(), self.late_op);
            // The other store has this row too.
            let is_replica = self.batch.row_notes.is_some();
            self.in_synced(|conn| {
                meta::put(conn, meta::CLEAN, 1)?;
                if !is_replica {
                    meta::put(conn, meta::NEXT_INO, mark.cast_signed())?;
                }
                meta::put(conn, meta::LAST_DENTRY, dentry::last_id(conn)?)?;
                tree_sum::store(conn)?;
                // After a clean close, the next run cannot derive this from `clean`.
                late_op.map_or(Ok(()), |last| meta::put(conn, meta::LATE_OP, last))
            })?;
            self.clean = true;
            self.batch.numbers.marked(mark);
        }
        self.wal.stop();
        self.poison.check()?;
        self.poison.keep(frames::checkpoint(&self.batch.conn, "TRUNCATE")).map(drop)
    }
}
