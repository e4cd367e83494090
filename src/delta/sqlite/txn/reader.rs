//! A reading connection.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;

use crate::delta::{ReadTxn, Reader, Result, StoreError};

use super::snapshot::Snapshot;
use crate::delta::sqlite::file::connect;
use crate::delta::sqlite::file::lock::SessionLock;

/// Reads snapshots, one read transaction each.
pub struct SqliteReader {
    pub conn: Connection,
    pub chunk_bytes: u64,
    /// Whether it waits for locks.
    pub waits: bool,
    /// Whether all reads see the snapshot of the first.
    pub keeps_snapshot: bool,
    /// Whether the transaction of the current read has begun.
    pub begun: Cell<bool>,
    /// Held while any connection is open.
    pub _lock: Option<Arc<SessionLock>>,
}

impl Snapshot for SqliteReader {
    fn conn(&self) -> Result<&Connection> {
        // Begin at the first row access: a read that needs no row costs nothing.
        if !self.begun.get() {
            self.conn.prepare_cached("BEGIN")?.execute([])?;
            self.begun.set(true);
        }
        Ok(&self.conn)
    }

    fn chunk_size(&self) -> u64 {
        self.chunk_bytes
    }
}

impl Reader for SqliteReader {
    fn read(&mut self, f: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()> {
        if self.keeps_snapshot {
            f(self);
            return Ok(());
        }
        if !self.conn.is_autocommit() {
            // The last read panicked.
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.begun.set(false);
        if !self.waits {
            connect::would_have_waited();
        }
        // SQLite takes the snapshot at the first statement of the transaction, and keeps it to the
        // end.
        f(self);
        // Some failures, which `f` saw, end the transaction.
        if !self.conn.is_autocommit() {
            self.conn.prepare_cached("COMMIT")?.execute([])?;
        }
        if !self.waits && connect::would_have_waited() {
            return Err(StoreError::busy("another program holds a lock"));
        }
        Ok(())
    }
    fn set_waits(&mut self, waits: bool) -> Result<()> {
        if self.waits == waits {
            return Ok(());
        }
        match waits {
            true => self.conn.busy_timeout(connect::BUSY_WAIT)?,
            false => connect::never_wait(&mut self.conn)?,
        }
        self.waits = waits;
        Ok(())
    }
}
