//! A reading connection.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;

use crate::delta::{ReadTxn, Reader, Result, StoreError};

use super::snapshot::Snapshot;
use crate::delta::sqlite::file::connect;
use crate::delta::sqlite::file::lock::SessionLock;

/// Reads snapshots, one transaction each.
pub struct SqliteReader {
    pub conn: Connection,
    pub chunk_bytes: u64,
    /// Whether it waits for locks.
    pub waits: bool,
    /// Whether this reading's transaction has begun.
    pub begun: Cell<bool>,
    /// Held while any connection is open.
    pub _lock: Option<Arc<SessionLock>>,
}

impl Snapshot for SqliteReader {
    fn conn(&self) -> Result<&Connection> {
        // With the first row: what needs none costs nothing here.
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
        if !self.conn.is_autocommit() {
            // The last reading panicked.
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.begun.set(false);
        if !self.waits {
            connect::would_have_waited();
        }
        // The snapshot is taken at the first statement inside the transaction, and kept to the end.
        f(self);
        // Some failures, which `f` saw, end the transaction by themselves.
        if !self.conn.is_autocommit() {
            self.conn.prepare_cached("COMMIT")?.execute([])?;
        }
        if !self.waits && connect::would_have_waited() {
            return Err(StoreError::Busy("another program holds a lock".to_owned()));
        }
        Ok(())
    }
}
