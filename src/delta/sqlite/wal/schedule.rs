//! The write-ahead log: when it is copied into the database.
//!
//! This is our business and not SQLite's (`wal_autocheckpoint`), because SQLite hides it when a
//! checkpoint fails, and a failed sync must not be missed (see writer.rs).

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks;

use crate::delta::{Poison, Result, StoreError};

use super::background::BackgroundThread;
use super::checkpointer::{DbPresync, WalCheckpointer, WalPresync, syncs_ahead};
use super::disk_reserve::DiskReserve;
use crate::delta::sqlite::file::connect::{self, BUSY_WAIT, beside};
use crate::delta::sqlite::file::disk::byte_len;
use crate::wal_shim;

/// Length of the log at which it is copied into the database, in bytes.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// What a commit adds at least, in bytes, where a client writes content as fast as it can.
const LARGE_COMMIT_BYTES: u64 = 1 << 20;

/// Length at which the log is copied then, in bytes: no page of content is there twice, so that
/// nothing is saved by waiting.
const EARLY_CHECKPOINT_BYTES: u64 = 4 << 20;

/// How much longer the log gets before the next try, where readers kept it from starting over,
/// in bytes.
const RETRY_BYTES: u64 = 8 << 20;

/// Length at which the writer waits for those readers, in bytes. With the largest batch behind
/// it, the log stays below 64 MiB.
const PATIENCE_BYTES: u64 = 40 << 20;

/// How long it waits for them. A reader of another program may take longer: the log grows on,
/// and is tried again when it is twice as long.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// What the file keeps when the log starts over, in bytes: overwriting is cheaper than growing.
const KEPT_BYTES: u64 = 20 << 20;

/// The same while commits are large or the log is longer than that: cutting it each time, and
/// letting it grow again, takes a tenth of the time.
const LONG_KEPT_BYTES: u64 = 64 << 20;

/// Time without such a commit after which it is cut.
const QUIET: Duration = Duration::from_secs(1);

/// Time until it is looked whether the thread has copied what is to be cut.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What the WAL begins with, in bytes; it is another one each time that the WAL starts over.
const HEADER_BYTES: usize = 32;

/// What the log has before each page, in bytes.
const FRAME_HEADER_BYTES: u64 = 24;

/// Length from which the log is cut to make room on a disk that is almost full, in bytes.
const ROOM_BYTES: u64 = 1 << 20;

/// How long that waits for readers.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Time until that which could not be written once more is tried again, if no promise needs it.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The log beside a session file.
pub struct Wal {
    session: PathBuf,
    path: PathBuf,
    /// Pages in the log, as of the last commit: its file may be longer than what it holds.
    pages: Arc<AtomicU32>,
    /// What a page takes in it, in bytes.
    frame_bytes: u64,
    /// Its length after the last commit, in bytes.
    last: u64,
    /// How much of it is known to be synced, in bytes; `None` while nobody knows what an earlier
    /// process left.
    synced: Option<u64>,
    /// Where an earlier process left something in it: when that is written once more, if no promise
    /// needs it earlier.
    inherited: Option<Instant>,
    /// Length at which the next checkpoint is due, in bytes.
    due_at: u64,
    /// When a commit was last large, or its log long; `None` since the file keeps less again.
    long_at: Option<Instant>,
    /// Whether all of it was copied after the last commit: the next one starts it over, and syncs
    /// its header.
    starts_over: Cell<bool>,
    poison: Poison,
    /// Its header after the last commit, where `wal_shim` does not see the commits.
    header: Option<[u8; HEADER_BYTES]>,
    /// When it was opened.
    opened_at: Instant,
    /// Does most of it.
    copying: BackgroundThread<WalCheckpointer>,
    /// Sync ahead where much is written, and where they may.
    syncing: Option<(BackgroundThread<WalPresync>, BackgroundThread<DbPresync>)>,
}

impl Wal {
    /// The session file.
    pub fn session(&self) -> &Path {
        &self.session
    }

    /// The log of the session file `session`, whose writer `conn` says from now on how long it
    /// is. `is_read` says that nothing will be written.
    pub fn of(
        session: &Path,
        conn: &mut Connection,
        is_read: bool,
        poison: &Poison,
    ) -> Result<Self> {
        keep(conn, KEPT_BYTES)?;
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut hooks::Wal, pages: i32| {
            told.store(pages.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }))?;
        let frame_bytes = FRAME_HEADER_BYTES + connect::page_bytes(conn)?;
        let path = beside(session, "-wal");
        let is_inherited = !is_read && byte_len(&path) > 0;
        let syncs = syncs_ahead(session);
        let copying = WalCheckpointer { pages: Arc::clone(&pages), frame_bytes, syncs };
        let copying = BackgroundThread::of(session, copying, poison);
        let syncing = syncs.then(|| {
            let log = WalPresync { log: path.clone(), copying: copying.progress() };
            let database = DbPresync { copying: copying.progress() };
            (
                BackgroundThread::of(session, log, poison),
                BackgroundThread::of(session, database, poison),
            )
        });
        Ok(Self {
            session: session.to_owned(),
            copying,
            syncing,
            path,
            pages,
            frame_bytes,
            last: 0,
            synced: None,
            inherited: is_inherited.then(Instant::now),
            due_at: CHECKPOINT_BYTES,
            long_at: None,
            starts_over: Cell::new(false),
            poison: poison.clone(),
            header: None,
            opened_at: Instant::now(),
        })
    }

    /// What the log holds, in bytes.
    fn length(&self) -> u64 {
        u64::from(self.pages.load(Ordering::Relaxed)) * self.frame_bytes
    }

    /// Looks how long the log is after a commit of this thread, and has it copied beside the
    /// writer when it is long enough.
    pub fn note_length(&mut self, conn: &Connection) {
        let length = self.length();
        let mut before = std::mem::replace(&mut self.last, length);
        self.starts_over.set(false);
        if self.has_started_over(conn) || length < before {
            // What it held is synced in the database.
            before = 0;
            self.due_at = CHECKPOINT_BYTES;
            self.synced = Some(0);
        }
        let is_large = length - before >= LARGE_COMMIT_BYTES;
        if is_large || length > KEPT_BYTES {
            let before = self.long_at.replace(Instant::now());
            if before.is_none() {
                // Else it is cut, which only takes longer.
                let _ = keep(conn, LONG_KEPT_BYTES);
            }
        }
        let is_early = is_large && self.due_at == CHECKPOINT_BYTES;
        let due_at = if is_early { EARLY_CHECKPOINT_BYTES } else { self.due_at };
        if length >= due_at && !self.copying.is_done() {
            self.copying.trigger();
            if is_large && let Some((log, database)) = &mut self.syncing {
                log.trigger();
                database.trigger();
            }
        }
    }

    /// Whether the last commit of this thread started the WAL over.
    fn has_started_over(&mut self, conn: &Connection) -> bool {
        if wal_shim::sees_wal(conn) {
            return wal_shim::has_started_over();
        }
        let header = header(&self.path);
        let before = std::mem::replace(&mut self.header, header);
        header.is_none() || before != header
    }

    /// Whether it holds, or may hold, what an earlier process left.
    pub fn is_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// Writes what an earlier process left once more ([`write_anew`]), if there is any.
    ///
    /// # Errors
    /// As there; it is to be tried again.
    pub fn take_over(&mut self, conn: &Connection) -> Result<()> {
        if self.inherited.is_some() {
            self.inherited = Some(Instant::now() + TRY_AGAIN);
            write_anew(conn)?;
            self.inherited = None;
        }
        Ok(())
    }

    /// Notes that all of the log is synced.
    pub fn note_sync(&mut self) {
        self.synced = Some(self.length());
    }

    /// What of the log is not synced, in bytes, at most.
    pub fn unsynced_bytes(&self) -> u64 {
        self.synced.map_or(u64::MAX, |synced| self.length().saturating_sub(synced))
    }

    /// When the writer has something to do here, if it will without another commit.
    pub fn maintenance_at(&self) -> Option<Instant> {
        if self.is_due() {
            return Some(self.opened_at);
        }
        let quiet_at = self.long_at.map(|at| at + QUIET);
        // To wait for what is being copied would hold changes up.
        let is_busy = self.copying.is_busy();
        let not_before = |at: Instant| at.max(Instant::now() + LOOK_AGAIN);
        let cut_at = quiet_at.map(|at| if is_busy { not_before(at) } else { at });
        self.inherited.into_iter().chain(cut_at).min()
    }

    /// Whether the writer has to copy something itself: what is left when most was copied, or
    /// all when that does not keep up.
    fn is_due(&self) -> bool {
        self.copying.is_done() || self.length() >= self.due_at.max(PATIENCE_BYTES)
    }

    /// Whether the next commit writes to the log and does nothing else with it: it neither takes
    /// over what an earlier process left, nor starts it over, nor waits until it is copied.
    pub fn is_ready(&self) -> bool {
        self.inherited.is_none() && !self.starts_over.get() && !self.is_due()
    }

    /// Copies what is due into the database; whether it did, so that all is copied that may be.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> Result<bool> {
        if !self.is_due() {
            return Ok(false);
        }
        self.copying.wait();
        self.copying.acknowledge();
        self.poison.check()?;
        let length = self.length();
        if length < PATIENCE_BYTES {
            // Where a reader keeps the log from starting over, it is tried again later.
            self.due_at = (length + RETRY_BYTES).min(PATIENCE_BYTES);
            self.copy_by(checkpoint(conn, "PASSIVE"))?;
        } else {
            self.due_at = 2 * length;
            self.copy_by(checkpoint_within(conn, READERS_WAIT, "RESTART"))?;
        }
        Ok(true)
    }

    /// Returns whether the file is to be cut by the next commit, and bounds what SQLite keeps of it
    /// then: it is long, and for a while no commit was large, nor its log long. `is_copied` says
    /// that all of the log was copied just now, so that it will start over; else the thread is
    /// asked to.
    pub fn prepare_cut(&mut self, conn: &Connection, is_copied: bool) -> Result<bool> {
        let is_quiet = self.long_at.is_some_and(|at| at.elapsed() >= QUIET);
        if !is_quiet || self.copying.is_busy() {
            return Ok(false);
        }
        let is_long = byte_len(&self.path) > KEPT_BYTES;
        if is_long && !is_copied {
            self.copying.trigger();
            return Ok(false);
        }
        self.long_at = None;
        keep(conn, KEPT_BYTES)?;
        Ok(is_long)
    }

    /// Returns once nothing is copied beside the writer.
    pub fn wait(&self) {
        self.copying.wait();
    }

    /// Ends what copies beside the writer, before the log is copied for the last time.
    pub fn stop(&mut self) {
        self.copying.stop();
        if let Some((log, database)) = &mut self.syncing {
            log.stop();
            database.stop();
        }
    }

    /// Copies the log into the database and cuts it, where the disk is so full that its length
    /// matters; before a batch.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn make_room(&self, conn: &Connection, room: &mut DiskReserve) -> Result<()> {
        if !self.wants_room(conn, room)? {
            return Ok(());
        }
        room.forget();
        self.copying.wait();
        self.copy_by(checkpoint_within(conn, ROOM_WAIT, "TRUNCATE"))
    }

    /// Whether [`Wal::make_room`] has something to do.
    pub fn wants_room(&self, conn: &Connection, room: &mut DiskReserve) -> Result<bool> {
        Ok(room.is_low(conn)? && byte_len(&self.path) >= ROOM_BYTES)
    }

    /// Copies as much as may be at once.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn copy_now(&self, conn: &Connection) -> Result<()> {
        self.copying.wait();
        self.copy_by(checkpoint(conn, "PASSIVE"))
    }

    /// Notes what was copied: without a commit since, the next one may start the log over.
    fn copy_by(&self, copied: Result<u32>) -> Result<()> {
        self.starts_over.set(true);
        copied.map(drop)
    }
}

/// Writes what an earlier process left in the log once more, so that the next sync writes it to
/// the disk; before the first promise.
///
/// A sync of that process may have failed, with nobody to tell of it. Then the system has pages of
/// the log in memory that it takes for written, no later sync writes them, and after a power loss
/// nothing counts that stands behind them.
///
/// # Errors
/// Another program writes for too long, or the log cannot be read or written.
pub fn write_anew(conn: &Connection) -> Result<()> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let written = wal_shim::rewrite_log(conn);
    // It fails only where there is nothing to roll back.
    let _ = conn.execute_batch("ROLLBACK");
    Ok(written?)
}

/// The header of the WAL, which has new salts each time that the WAL starts over; `None` where it
/// cannot be read. No lock is held through this file, so closing it releases none.
fn header(path: &Path) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

/// Lets the file keep so many bytes when the log starts over.
fn keep(conn: &Connection, bytes: u64) -> Result<()> {
    Ok(conn.pragma_update(None, "journal_size_limit", bytes.cast_signed())?)
}

/// The same as [`checkpoint`], where `how` waits for readers: as long as this.
fn checkpoint_within(conn: &Connection, wait: Duration, how: &str) -> Result<u32> {
    conn.busy_timeout(wait)?;
    let done = checkpoint(conn, how);
    conn.busy_timeout(BUSY_WAIT)?;
    done
}

/// Copies the log into the database, as far as readers let us; the pages of the log that are
/// copied by now.
///
/// # Errors
/// A sync or write failed: what was not synced before may be lost. A full disk or a lock are
/// no errors, since all of it is still in the log.
pub fn checkpoint(conn: &Connection, how: &str) -> Result<u32> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    // Whether it was kept from it, the pages in the log, and those of them that are copied.
    let copied = conn.query_row(&sql, [], |row| row.get::<_, i64>(2)).map_err(StoreError::from);
    match copied {
        Ok(pages) => Ok(u32::try_from(pages).unwrap_or(0)),
        Err(StoreError::Full(_) | StoreError::Busy(_) | StoreError::ReadOnly(_)) => Ok(0),
        Err(error) => Err(error),
    }
}
