//! Allocates inode numbers (invariant M2).

use rusqlite::Connection;

use crate::base::DELTA_IDS;
use crate::delta::{Ino, Result, StoreError};
use crate::vfs::FileId;

use super::{dentry_ids, meta, value};

/// First number that acetate allocates. The range below it, from [`DELTA_IDS`] on, is for inodes n
/// of other implementations, shown as [`DELTA_IDS`] + n (see [`Ino::fileid`]), also for future
/// ones.
const FIRST: u64 = DELTA_IDS + (1 << 32);

/// Numbers reserved ahead. A batch begins with at least half of them; an operation needs at most
/// one for each directory above its object.
const RESERVE: u64 = 1 << 16;

/// Stores the mark, and raises `sqlite_sequence`, which SQLite would otherwise write with each row.
pub fn put_mark(conn: &Connection, mark: u64) -> Result<()> {
    meta::put(conn, meta::NEXT_INO, mark.cast_signed())?;
    dentry_ids::raise(conn, "fs_inode", mark.cast_signed() - 1)
}

/// Allocates numbers from a range that the file recorded as used *before*. So no later run reuses a
/// number, even if the batch is rolled back or the machine crashes.
pub struct InodeNumbers {
    /// The next number.
    next: u64,
    /// `acetate_meta.next_ino`: a later run starts here.
    mark: u64,
    /// The first number of this run.
    first: u64,
}

impl InodeNumbers {
    /// Starts at the mark, and above every number that another program has used in the file.
    pub fn load(conn: &Connection) -> Result<Self> {
        let mark = meta::get::<i64>(conn, meta::NEXT_INO)?.unwrap_or(0).cast_unsigned();
        let largest_below = |limit: u64, table: &str| -> Result<u64> {
            let sql = format!("SELECT ifnull(max(ino), 0) FROM {table} WHERE ino < ?1");
            let mut statement = conn.prepare(&sql)?;
            Ok(statement.query_row([limit.cast_signed()], |row| value::unsigned(row, 0))?)
        };
        let small = largest_below(DELTA_IDS, "fs_inode")?;
        // Content without an inode, left by another program, would belong to a new inode of its
        // number.
        let large =
            largest_below(FileId::LIMIT, "fs_inode")?.max(largest_below(FileId::LIMIT, "fs_data")?);
        let next = mark.max(FIRST).max(DELTA_IDS + small + 1).max(large + 1);
        Ok(Self { next, mark, first: next })
    }

    /// Allocates the next number.
    ///
    /// # Errors
    /// [`StoreError::busy`]: the reserved range is used up; the next batch reserves more.
    pub fn allocate(&mut self) -> Result<Ino> {
        if self.next >= FileId::LIMIT {
            return Err(StoreError::full("all inode numbers are used"));
        }
        if self.next >= self.mark {
            return Err(StoreError::busy("a batch with too many new objects"));
        }
        let ino = Ino(self.next);
        self.next += 1;
        Ok(ino)
    }

    /// Whether this run allocated the number, so that no other program has rows of it.
    pub fn is_ours(&self, ino: Ino) -> bool {
        ino.0 >= self.first
    }

    /// The mark that the file must store before the next batch, if the reserved range is running
    /// out.
    pub fn due(&self) -> Option<u64> {
        (self.next + RESERVE / 2 > self.mark).then_some(self.next + RESERVE)
    }

    /// The mark for a clean close: no number stays reserved.
    pub fn last(&self) -> u64 {
        self.next.max(FIRST)
    }

    /// Records that the file stores this mark.
    pub fn marked(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// The first number of a new session.
    pub fn first() -> u64 {
        FIRST
    }
}
