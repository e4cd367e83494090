//! Fresh inode numbers (invariant M2).

use rusqlite::Connection;

use crate::base::DELTA_IDS;
use crate::delta::{Ino, Result, StoreError};
use crate::vfs::FileId;

use super::{dentry_ids, meta, value};

/// First number that acetate gives out: below it, [`DELTA_IDS`] + n is what the export shows for
/// an inode n of another implementation (see [`Ino::fileid`]), today's or tomorrow's.
const FIRST: u64 = DELTA_IDS + (1 << 32);

/// Numbers that are reserved ahead; a batch begins with half of them at least, and an operation
/// needs one for each directory above it at most.
const RESERVE: u64 = 1 << 16;

/// Writes the mark, and what SQLite would write with every row up to it.
pub fn put_mark(conn: &Connection, mark: u64) -> Result<()> {
    meta::put(conn, meta::NEXT_INO, mark.cast_signed())?;
    dentry_ids::raise(conn, "fs_inode", mark.cast_signed() - 1)
}

/// Gives out numbers from a range that the file has recorded as used *before*: whatever becomes
/// of the batch that takes a number, and of the machine, no later run gives it out again.
pub struct InodeNumbers {
    /// The next to give out.
    next: u64,
    /// `acetate_meta.next_ino`: a later run begins here.
    mark: u64,
    /// The first that this run gives out.
    first: u64,
}

impl InodeNumbers {
    /// Begins at the mark, and above every number that another program has used in the file.
    pub fn load(conn: &Connection) -> Result<Self> {
        let mark = meta::get::<i64>(conn, meta::NEXT_INO)?.unwrap_or(0).cast_unsigned();
        let largest_below = |limit: u64, table: &str| -> Result<u64> {
            let sql = format!("SELECT ifnull(max(ino), 0) FROM {table} WHERE ino < ?1");
            let mut statement = conn.prepare(&sql)?;
            Ok(statement.query_row([limit.cast_signed()], |row| value::unsigned(row, 0))?)
        };
        let small = largest_below(DELTA_IDS, "fs_inode")?;
        // Content that another program left without an inode would be found under its number.
        let large =
            largest_below(FileId::LIMIT, "fs_inode")?.max(largest_below(FileId::LIMIT, "fs_data")?);
        let next = mark.max(FIRST).max(DELTA_IDS + small + 1).max(large + 1);
        Ok(Self { next, mark, first: next })
    }

    /// The next number.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: the batch has used up what is reserved; the next one has more.
    pub fn allocate(&mut self) -> Result<Ino> {
        if self.next >= FileId::LIMIT {
            return Err(StoreError::Full("all inode numbers are used".to_owned()));
        }
        if self.next >= self.mark {
            return Err(StoreError::Busy("a batch with too many new objects".to_owned()));
        }
        let ino = Ino(self.next);
        self.next += 1;
        Ok(ino)
    }

    /// Whether this run gave the number out: no other program has stored anything under it.
    pub fn is_ours(&self, ino: Ino) -> bool {
        ino.0 >= self.first
    }

    /// The mark that the file has to hold before the next batch, if the reserved range runs out.
    pub fn due(&self) -> Option<u64> {
        (self.next + RESERVE / 2 > self.mark).then_some(self.next + RESERVE)
    }

    /// The mark of a session that is closed: nothing stays reserved.
    pub fn last(&self) -> u64 {
        self.next.max(FIRST)
    }

    /// Notes that the file holds this mark.
    pub fn marked(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// The number from which a new session counts.
    pub fn first() -> u64 {
        FIRST
    }
}
