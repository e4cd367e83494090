//! Changing rows inside the writer's transaction.

use rusqlite::Connection;

use crate::base::BasePath;
use crate::delta::{AuditRow, Ino, InodeRow, MergedPath, Result, StoreError, WriteTxn};
use crate::vfs::{FileId, Name, Time};

use super::chunk::Chunks;
use super::number::Numbers;
use super::op::Tail;
use super::room::Room;
use super::snapshot::Snapshot;
use super::{dentry, inode, link, redirect, symlink, whiteout};

/// What a new object takes, with its entry and its row in the audit log, in bytes.
const ENTRY_BYTES: usize = 4 << 10;

/// The writer's open batch.
pub(super) struct Batch {
    /// The writing connection.
    pub conn: Connection,
    /// Chunk size, in bytes.
    pub chunk_bytes: u64,
    /// Fresh inode numbers.
    pub numbers: Numbers,
    /// The audit log's last row.
    pub tail: Tail,
    /// The audit log's last row at the last savepoint.
    pub tail_before: Tail,
    /// Room on the disk.
    pub room: Room,
    /// The last failure of a change: some make SQLite give the whole transaction up.
    pub failure: Option<StoreError>,
}

impl Snapshot for Batch {
    fn conn(&self) -> Result<&Connection> {
        Ok(&self.conn)
    }

    fn chunk_size(&self) -> u64 {
        self.chunk_bytes
    }
}

impl Batch {
    /// Runs a change, and remembers how it failed.
    fn change<T>(&mut self, change: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let result = change(&self.conn);
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }
}

impl WriteTxn for Batch {
    fn allocate_ino(&mut self) -> Result<Ino> {
        self.numbers.allocate()
    }

    fn put_inode(&mut self, row: &InodeRow) -> Result<()> {
        self.change(|conn| inode::put(conn, row))
    }

    fn delete_inode(&mut self, ino: Ino) -> Result<()> {
        self.change(|conn| inode::delete(conn, ino))
    }

    fn insert_dentry(&mut self, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
        self.room.add(&self.conn, ENTRY_BYTES)?;
        self.change(|conn| dentry::insert(conn, parent, name, ino))
    }

    fn delete_dentry(&mut self, parent: Ino, name: &Name) -> Result<()> {
        self.change(|conn| dentry::delete(conn, parent, name))
    }

    fn write_data(&mut self, inode: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()> {
        let chunk_bytes = self.chunk_bytes;
        self.room.add(&self.conn, data.len())?;
        self.change(|conn| Chunks::of(conn, inode.ino, chunk_bytes).write(inode, offset, data))
    }

    fn truncate(&mut self, inode: &mut InodeRow, size: u64) -> Result<()> {
        let chunk_bytes = self.chunk_bytes;
        self.change(|conn| Chunks::of(conn, inode.ino, chunk_bytes).truncate(inode, size))
    }

    fn put_symlink(&mut self, ino: Ino, target: &[u8]) -> Result<()> {
        self.change(|conn| symlink::put(conn, ino, target))
    }

    fn add_whiteout(&mut self, path: &MergedPath, now: Time) -> Result<()> {
        self.change(|conn| whiteout::add(conn, path, now))
    }

    fn remove_whiteout(&mut self, path: &MergedPath) -> Result<bool> {
        self.change(|conn| whiteout::remove(conn, path))
    }

    fn remove_whiteouts_below(&mut self, path: &MergedPath) -> Result<()> {
        self.change(|conn| whiteout::remove_below(conn, path))
    }

    fn move_whiteouts_below(&mut self, from: &MergedPath, to: &MergedPath) -> Result<()> {
        self.change(|conn| whiteout::move_below(conn, from, to))
    }

    fn put_redirect(&mut self, ino: Ino, base: &BasePath) -> Result<()> {
        self.change(|conn| redirect::put(conn, ino, base))
    }

    fn remove_redirect(&mut self, ino: Ino) -> Result<()> {
        self.change(|conn| redirect::delete(conn, ino))
    }

    fn hide_link(&mut self, base: FileId, now: Time) -> Result<()> {
        self.change(|conn| link::hide(conn, base, now))
    }

    fn record(&mut self, row: &AuditRow) -> Result<()> {
        let mut tail = std::mem::take(&mut self.tail);
        let result = self.change(|conn| tail.record(conn, row));
        self.tail = tail;
        result
    }
}
