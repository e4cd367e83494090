//! Implements [`Store`] for a session: the worker's reader and writer connections.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use rusqlite::Connection;

use crate::delta::{Limits, Reader, Result, Store, UnacknowledgedOp, WalSize, Writer};
use crate::vfs::FsStat;

use super::file::connect::{self, Role, companion_path};
use super::file::disk;
use super::file::session::{OpenMode, Session, open_read_only};
use super::txn::reader::SqliteReader;
use super::txn::writer::SqliteWriter;
use super::txn::writer_token::WriterToken;

impl Session {
    /// Opens a connection for reading.
    fn reading(&self) -> Result<Connection> {
        let conn = match self.mode {
            OpenMode::Serve => connect::open(&self.path, Role::Reader),
            OpenMode::ReadOnly | OpenMode::Inspect => open_read_only(&self.path),
        }?;
        self.go_back(&conn)?;
        Ok(conn)
    }

    /// Opens the one writing connection.
    pub(in crate::delta) fn open_writer(&self) -> Result<SqliteWriter> {
        let turn = WriterToken::take(&self.writing)?;
        let waiting = self.first.lock().take();
        let mut conn = match (self.mode, waiting) {
            (OpenMode::Serve, Some(conn)) => conn,
            (OpenMode::Serve, None) => {
                let conn = connect::open(&self.path, Role::Writer)?;
                connect::prepare_to_write(&conn)?;
                conn
            }
            (OpenMode::ReadOnly | OpenMode::Inspect, _) => open_read_only(&self.path)?,
        };
        if let Some(notes) = &self.row_notes {
            notes.watch(&mut conn)?;
        }
        SqliteWriter::new(self, conn, turn)
    }
}

impl Store for Session {
    fn writer(&self) -> Result<Box<dyn Writer>> {
        Ok(Box::new(self.open_writer()?))
    }

    fn reader(&self) -> Result<Box<dyn Reader>> {
        let conn = self.reading()?;
        let (chunk_bytes, lock) = (self.config.chunk_bytes, self.lock.clone());
        let keeps_snapshot = self.at.is_some();
        let begun = Cell::new(keeps_snapshot);
        let waits = true;
        let reader = SqliteReader { conn, chunk_bytes, waits, keeps_snapshot, begun, _lock: lock };
        Ok(Box::new(reader))
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp] {
        &self.unacknowledged_ops
    }

    fn limits(&self) -> Limits {
        self.config.limits
    }

    fn disk_usage(&self) -> Result<FsStat> {
        let disk = disk::usage(&self.path)?;
        let Some(bound) = &self.memory else { return Ok(disk) };
        let own = bound.usage(&self.path);
        Ok(FsStat {
            total_bytes: own.total_bytes.min(disk.total_bytes),
            free_bytes: own.free_bytes.min(disk.free_bytes),
            available_bytes: own.available_bytes.min(disk.available_bytes),
            ..disk
        })
    }

    fn wal_size(&self) -> WalSize {
        let file_bytes = disk::byte_len(&companion_path(&self.path, "-wal"));
        WalSize { file_bytes, left_bytes: self.wal.left_bytes() }
    }
}
