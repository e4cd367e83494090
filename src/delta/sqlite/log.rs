//! The write-ahead log: when it is copied into the database.
//!
//! This is our business and not SQLite's (`wal_autocheckpoint`), because SQLite hides it when a
//! checkpoint fails, and a failed sync must not be missed (see writer.rs).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use super::connect::{BUSY_WAIT, beside};
use super::probe::byte_len;
use super::room::Room;

/// Length of the log at which it is copied into the database, in bytes.
const CHECKPOINT_BYTES: u64 = 32 << 20;

/// How much longer the log gets before the next try, where readers kept it from starting over,
/// in bytes.
const RETRY_BYTES: u64 = 8 << 20;

/// Length at which the writer waits for those readers, in bytes.
const PATIENCE_BYTES: u64 = 256 << 20;

/// Length from which the log is cut to make room on a disk that is almost full, in bytes.
const ROOM_BYTES: u64 = 1 << 20;

/// How long that waits for readers.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// The log beside a session file.
pub(super) struct Log {
    path: PathBuf,
    /// Its length after the last commit, in bytes.
    length: u64,
    /// Length at which the next checkpoint is due, in bytes.
    due_at: u64,
}

impl Log {
    /// The log of the session file `session`.
    pub(super) fn of(session: &Path) -> Self {
        Self { path: beside(session, "-wal"), length: 0, due_at: CHECKPOINT_BYTES }
    }

    /// Looks how long the log is after a commit.
    pub(super) fn note_length(&mut self) {
        // The file's length is what it holds: it is cut when it starts over.
        self.length = byte_len(&self.path);
        if self.length < CHECKPOINT_BYTES {
            self.due_at = CHECKPOINT_BYTES;
        }
    }

    /// Whether the log is long enough to be copied into the database.
    pub(super) fn is_due(&self) -> bool {
        self.length >= self.due_at
    }

    /// Copies the log into the database when it is long enough.
    ///
    /// # Errors
    /// As [`Log::checkpoint`].
    pub(super) fn checkpoint_if_due(&mut self, conn: &Connection) -> Result<()> {
        if !self.is_due() {
            return Ok(());
        }
        self.due_at = self.length + RETRY_BYTES;
        self.checkpoint(conn, if self.length < PATIENCE_BYTES { "PASSIVE" } else { "RESTART" })
    }

    /// Copies the log into the database and cuts it, where the disk is so full that its length
    /// matters; before a batch.
    ///
    /// # Errors
    /// As [`Log::checkpoint`].
    pub(super) fn make_room(&self, conn: &Connection, room: &Room) -> Result<()> {
        if byte_len(&self.path) < ROOM_BYTES || !room.is_low(conn)? {
            return Ok(());
        }
        conn.busy_timeout(ROOM_WAIT)?;
        let cut = self.checkpoint(conn, "TRUNCATE");
        conn.busy_timeout(BUSY_WAIT)?;
        cut
    }

    /// Copies the log into the database, as far as readers let us.
    ///
    /// # Errors
    /// A sync or write failed: what was not synced before may be lost. A full disk or a lock are
    /// no errors, since all of it is still in the log.
    pub(super) fn checkpoint(&self, conn: &Connection, how: &str) -> Result<()> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        match conn.query_row(&sql, [], |_| Ok(())).map_err(StoreError::from) {
            Err(StoreError::Full(_) | StoreError::Busy(_) | StoreError::ReadOnly(_)) => Ok(()),
            result => result,
        }
    }
}
