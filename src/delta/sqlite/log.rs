//! The write-ahead log: when it is copied into the database.
//!
//! This is our business and not SQLite's (`wal_autocheckpoint`), because SQLite hides it when a
//! checkpoint fails, and a failed sync must not be missed (see writer.rs).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::delta::{Result, StoreError};

use super::beside::Beside;
use super::connect::{self, BUSY_WAIT, beside};
use super::probe::byte_len;
use super::room::Room;

/// Length of the log at which it is copied into the database, in bytes.
const CHECKPOINT_BYTES: u64 = 16 << 20;

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

/// What the log has before each page, in bytes.
const FRAME_HEADER_BYTES: u64 = 24;

/// Length from which the log is cut to make room on a disk that is almost full, in bytes.
const ROOM_BYTES: u64 = 1 << 20;

/// How long that waits for readers.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// The log beside a session file.
pub(super) struct Log {
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
    /// Length at which the next checkpoint is due, in bytes.
    due_at: u64,
    /// Does most of it.
    beside: Beside,
}

impl Log {
    /// The session file.
    pub(super) fn session(&self) -> &Path {
        &self.session
    }

    /// The log of the session file `session`, whose writer `conn` says from now on how long it
    /// is.
    pub(super) fn of(session: &Path, conn: &mut Connection) -> Result<Self> {
        conn.pragma_update(None, "journal_size_limit", KEPT_BYTES.cast_signed())?;
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            told.store(pages.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }))?;
        let frame_bytes = FRAME_HEADER_BYTES + connect::page_bytes(conn)?;
        Ok(Self {
            session: session.to_owned(),
            path: beside(session, "-wal"),
            pages,
            frame_bytes,
            last: 0,
            synced: None,
            due_at: CHECKPOINT_BYTES,
            beside: Beside::of(session),
        })
    }

    /// What the log holds, in bytes.
    fn length(&self) -> u64 {
        u64::from(self.pages.load(Ordering::Relaxed)) * self.frame_bytes
    }

    /// Looks how long the log is after a commit, and has it copied beside the writer when it is
    /// long enough.
    pub(super) fn note_length(&mut self) {
        let length = self.length();
        if length < std::mem::replace(&mut self.last, length) {
            // It has started over, and what it held is synced in the database.
            self.due_at = CHECKPOINT_BYTES;
            self.synced = Some(0);
        }
        if length >= self.due_at && !self.beside.is_done() {
            self.beside.ask();
        }
    }

    /// Notes that all of the log is synced.
    pub(super) fn note_sync(&mut self) {
        self.synced = Some(self.length());
    }

    /// What of the log is not synced, in bytes, at most.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.synced.map_or(u64::MAX, |synced| self.length().saturating_sub(synced))
    }

    /// Whether the writer has to copy something itself: what is left when most was copied, or
    /// all when that does not keep up.
    pub(super) fn is_due(&self) -> bool {
        self.beside.is_done() || self.length() >= self.due_at.max(PATIENCE_BYTES)
    }

    /// Why what was committed and not synced may be lost, if it may.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.beside.failure()
    }

    /// Copies what is due into the database.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub(super) fn checkpoint_if_due(&mut self, conn: &Connection) -> Result<()> {
        if !self.is_due() {
            return Ok(());
        }
        self.beside.wait();
        self.beside.take_notice();
        if let Some(failure) = self.beside.failure() {
            return Err(failure);
        }
        let length = self.length();
        if length < PATIENCE_BYTES {
            // Where a reader keeps the log from starting over, it is tried again later.
            self.due_at = (length + RETRY_BYTES).min(PATIENCE_BYTES);
            return checkpoint(conn, "PASSIVE");
        }
        self.due_at = 2 * length;
        checkpoint_within(conn, READERS_WAIT, "RESTART")
    }

    /// Ends what copies beside the writer, before the log is copied for the last time.
    pub(super) fn stop(&mut self) {
        self.beside.stop();
    }

    /// Copies the log into the database and cuts it, where the disk is so full that its length
    /// matters; before a batch.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub(super) fn make_room(&self, conn: &Connection, room: &mut Room) -> Result<()> {
        if !room.is_low(conn)? || byte_len(&self.path) < ROOM_BYTES {
            return Ok(());
        }
        room.forget();
        self.beside.wait();
        checkpoint_within(conn, ROOM_WAIT, "TRUNCATE")
    }

    /// Copies as much as may be at once, because the disk is full.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub(super) fn copy_now(&self, conn: &Connection) -> Result<()> {
        self.beside.wait();
        checkpoint(conn, "PASSIVE")
    }
}

/// The same as [`checkpoint`], where `how` waits for readers: as long as this.
fn checkpoint_within(conn: &Connection, wait: Duration, how: &str) -> Result<()> {
    conn.busy_timeout(wait)?;
    let done = checkpoint(conn, how);
    conn.busy_timeout(BUSY_WAIT)?;
    done
}

/// Copies the log into the database, as far as readers let us.
///
/// # Errors
/// A sync or write failed: what was not synced before may be lost. A full disk or a lock are
/// no errors, since all of it is still in the log.
pub(super) fn checkpoint(conn: &Connection, how: &str) -> Result<()> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    match conn.query_row(&sql, [], |_| Ok(())).map_err(StoreError::from) {
        Err(StoreError::Full(_) | StoreError::Busy(_) | StoreError::ReadOnly(_)) => Ok(()),
        result => result,
    }
}
