//! Reserves disk space, so that a full disk can be emptied again.
//!
//! A commit first needs space in the WAL, and later in the database, when the WAL is checkpointed.
//! If the disk were full by then, the WAL could not be checkpointed or restarted. Even deleting
//! would fail for good, because it writes to the WAL. So changes that add content are refused while
//! there is still space for both.
//!
//! A session in memory has its [`MemoryBound`] as its disk. A batch is refused if that bound might
//! not hold it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::delta::{Result, StoreError};
use crate::vfs::FsStat;

use crate::delta::sqlite::file::connect;
use crate::delta::sqlite::file::disk::{self, byte_len};
use crate::delta::sqlite::file::memory::MemoryBound;

/// Space that only deletions, syncs and the like may use, in bytes.
const RESERVED_BYTES: u64 = 4 << 20;

/// That space for a session in memory, in bytes: more than the largest batch needs.
const MEMORY_RESERVED_BYTES: u64 = 32 << 20;

/// Content of a batch that may be in memory and not in the WAL yet, in bytes.
const MAX_UNWRITTEN_BYTES: u64 = 24 << 20;

/// With less free space than this, in bytes, the WAL is truncated.
const LOW_BYTES: u64 = 64 << 20;

/// The free space is queried again after this many more bytes were added.
const STEP_BYTES: u64 = 256 << 10;

/// The free space is queried again after this time, as other programs also fill the disk.
const TRUSTED_FOR: Duration = Duration::from_millis(100);

/// Tracks the free disk space of a session.
pub struct DiskReserve {
    path: PathBuf,
    /// The bound, if the session is in memory.
    memory: Option<MemoryBound>,
    /// Queries the disk; replaced in tests.
    usage: fn(&Path) -> Result<FsStat>,
    /// Bytes that the current batch has added.
    added: u64,
    /// The last query's result, while it may still be used.
    known: Option<KnownSpace>,
}

/// The result of a query of the free space.
struct KnownSpace {
    /// [`DiskReserve::spare`], in bytes.
    spare: Option<u64>,
    /// Bytes added since the query.
    added: u64,
    /// When the disk was queried.
    at: Instant,
}

impl DiskReserve {
    /// The reserve for the session file `session`; with `memory` if the session is in memory.
    pub fn of(session: &Path, memory: Option<MemoryBound>) -> Self {
        Self { path: session.to_owned(), memory, usage: disk::usage, added: 0, known: None }
    }

    /// Whether the session is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub fn begin(&mut self) {
        self.added = 0;
    }

    /// Fails if the bound of a session in memory might not hold another batch. Pages in the WAL
    /// need space in the database later.
    ///
    /// # Errors
    /// [`StoreError::full`].
    pub fn check_memory(&mut self, conn: &Connection) -> Result<()> {
        if self.memory.is_none() {
            return Ok(());
        }
        match self.ask(conn)? {
            Some(spare) if spare < MAX_UNWRITTEN_BYTES => {
                self.forget();
                Err(StoreError::full("the session's memory is used up"))
            }
            _ => Ok(()),
        }
    }

    /// Discards the last query's result, because the free space has changed.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Counts `bytes` that a change of the batch is about to add.
    ///
    /// # Errors
    /// [`StoreError::full`]: the bytes would need reserved space.
    pub fn add(&mut self, conn: &Connection, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        let added = self.added.saturating_add(bytes);
        if let Some(known) = self.still_known(bytes) {
            known.added += bytes;
            self.added = added;
            return Ok(());
        }
        // Bytes added until the next query also grow the database. Pages are not filled completely.
        let coming = with_waste(bytes.saturating_add(STEP_BYTES));
        let unwritten = with_waste(added).min(MAX_UNWRITTEN_BYTES);
        let needed = unwritten.saturating_add(coming).saturating_add(self.reserved());
        if self.ask(conn)?.is_some_and(|spare| spare < needed) {
            self.forget();
            return Err(StoreError::full("what is left is reserved for deleting"));
        }
        self.added = added;
        Ok(())
    }

    /// Whether `bytes` of content that a change removes can be saved for a checkpoint without
    /// reserved space, and counts them if so. They only need room in the WAL: in the database, they
    /// take the place of what is removed.
    ///
    /// # Errors
    /// SQLite's.
    pub fn can_save(&mut self, conn: &Connection, bytes: u64) -> Result<bool> {
        let spare = match self.still_known(bytes) {
            Some(known) => known.spare.map(|spare| spare.saturating_sub(known.added)),
            None => self.ask(conn)?,
        };
        let unwritten = with_waste(self.added).min(MAX_UNWRITTEN_BYTES);
        let needed = unwritten.saturating_add(with_waste(bytes)).saturating_add(self.reserved());
        if spare.is_some_and(|spare| spare < needed) {
            self.forget();
            return Ok(false);
        }
        self.added = self.added.saturating_add(bytes);
        if let Some(known) = &mut self.known {
            known.added += bytes;
        }
        Ok(true)
    }

    /// Space that only deletions, syncs and the like may use, in bytes.
    fn reserved(&self) -> u64 {
        if self.is_in_memory() { MEMORY_RESERVED_BYTES } else { RESERVED_BYTES }
    }

    /// Whether the free space is so low that the WAL should be truncated.
    pub(super) fn is_low(&mut self, conn: &Connection) -> Result<bool> {
        let spare = match self.still_known(0) {
            Some(known) => known.spare,
            None => self.ask(conn)?,
        };
        Ok(spare.is_some_and(|spare| spare < LOW_BYTES))
    }

    /// The last query's result, if it may still be used after adding `bytes`.
    fn still_known(&mut self, bytes: u64) -> Option<&mut KnownSpace> {
        let counts = |known: &&mut KnownSpace| {
            known.added + bytes < STEP_BYTES && known.at.elapsed() < TRUSTED_FOR
        };
        self.known.as_mut().filter(counts)
    }

    /// Queries the disk.
    fn ask(&mut self, conn: &Connection) -> Result<Option<u64>> {
        let spare = self.spare(conn)?;
        self.known = Some(KnownSpace { spare, added: 0, at: Instant::now() });
        Ok(spare)
    }

    /// The bytes that remain free once the WAL is copied into the database; `None` if the system
    /// does not report free space.
    fn spare(&self, conn: &Connection) -> Result<Option<u64>> {
        let disk = match &self.memory {
            Some(bound) => bound.usage(&self.path),
            None => match (self.usage)(&self.path) {
                Ok(disk) => disk,
                Err(_) => return Ok(None),
            },
        };
        if disk.total_bytes == 0 {
            return Ok(None);
        }
        let mut pages = conn.prepare_cached("PRAGMA page_count")?;
        let pages: i64 = pages.query_row([], |row| row.get(0))?;
        let length = pages.cast_unsigned().saturating_mul(connect::page_bytes(conn)?);
        let growth = length.saturating_sub(byte_len(&self.path));
        Ok(Some(disk.available_bytes.saturating_sub(growth)))
    }
}

/// Upper bound of the space that `bytes` of content need.
fn with_waste(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::StoreErrorKind;

    const MIB: u64 = 1 << 20;

    fn room(usage: fn(&Path) -> Result<FsStat>) -> DiskReserve {
        DiskReserve { usage, ..DiskReserve::of(Path::new("/nowhere"), None) }
    }

    fn disk(total_bytes: u64, available_bytes: u64) -> Result<FsStat> {
        let bytes = FsStat {
            total_bytes,
            free_bytes: available_bytes,
            available_bytes,
            total_files: 0,
            free_files: 0,
            available_files: 0,
        };
        Ok(bytes)
    }

    #[test]
    fn what_is_reserved_is_not_given_out() {
        let conn = Connection::open_in_memory().unwrap();
        let mut room = room(|_| disk(64 * MIB, 10 * MIB));
        let added = (0..64).take_while(|_| room.add(&conn, 1 << 20).is_ok()).count();
        // 4 MiB are reserved, and each MiB needs space in the WAL and half as much again.
        assert!((1..4).contains(&added), "{added}");
        assert!(room.add(&conn, 1 << 20).is_err());
        room.begin();
        assert!(room.add(&conn, 1).is_ok());
    }

    #[test]
    fn a_database_that_has_yet_to_grow_counts() {
        let conn = Connection::open_in_memory().unwrap();
        let mut room = room(|_| disk(64 * MIB, 10 * MIB));
        assert!(room.add(&conn, 1).is_ok());
        conn.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(8 << 20))").unwrap();
        room.begin();
        assert_eq!(
            room.add(&conn, STEP_BYTES as usize).map_err(|error| error.kind),
            Err(StoreErrorKind::Full)
        );
        assert_eq!(
            room.add(&conn, 1).map_err(|error| error.kind),
            Err(StoreErrorKind::Full),
            "it is checked again"
        );
        assert!(room.is_low(&conn).unwrap());
    }

    #[test]
    fn a_disk_that_tells_nothing_is_not_asked() {
        let conn = Connection::open_in_memory().unwrap();
        for usage in [|_: &Path| disk(0, 0), |_: &Path| Err(StoreError::io("no"))] {
            let mut room = room(usage);
            assert!(room.add(&conn, 64 << 20).is_ok());
            assert!(!room.is_low(&conn).unwrap());
        }
    }
}
