//! A reading connection.

use std::sync::Arc;

use rusqlite::Connection;

use crate::delta::{ReadTxn, Reader, Result};

use super::lock::SessionLock;
use super::snapshot::Snapshot;

/// Reads snapshots, one transaction each.
pub(super) struct SqliteReader {
    pub conn: Connection,
    pub chunk_bytes: u64,
    /// Held while any connection is open.
    pub _lock: Option<Arc<SessionLock>>,
}

impl Snapshot for SqliteReader {
    fn conn(&self) -> &Connection {
        &self.conn
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
        self.conn.prepare_cached("BEGIN")?.execute([])?;
        // The snapshot is taken at the first statement inside, and kept to the end; without one,
        // the file is not touched.
        f(self);
        // Some failures, which `f` saw, end the transaction by themselves.
        if !self.conn.is_autocommit() {
            self.conn.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }
}
