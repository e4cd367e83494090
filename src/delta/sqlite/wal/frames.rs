//! Works on all frames of the WAL: copies them into the database, or rewrites them.

use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::counters::COUNTERS;
use crate::delta::sqlite::file::connect::BUSY_WAIT;
use crate::delta::{Result, StoreError};
use crate::wal_shim;

/// How long SQLite waits for readers before it looks again which of them hold up the checkpoint. It
/// waits for a read mark (`aReadMark`), not for a snapshot: a mark that new readers have moved to
/// the newest snapshot is never free while they overlap, though none of them holds anything up.
const ATTEMPT: Duration = Duration::from_millis(50);

/// Delay between two attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(2);

/// Copies the WAL into the database as far as readers allow; returns how many of its pages are
/// copied now.
///
/// # Errors
/// An fsync or write failed: data that was not synced before may be lost. A full disk or a lock is
/// no error, because the WAL still holds everything.
pub fn checkpoint(conn: &Connection, how: &str) -> Result<u32> {
    Ok(attempt(conn, how)?.pages)
}

/// Like [`checkpoint`], where the mode `how` waits at most about `wait` for readers.
pub(super) fn checkpoint_within(conn: &Connection, wait: Duration, how: &str) -> Result<u32> {
    let begun = Instant::now();
    conn.busy_timeout(ATTEMPT.min(wait))?;
    let done = loop {
        match attempt(conn, how) {
            Ok(CheckpointOutcome { is_held_up: true, .. }) if begun.elapsed() < wait => {
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            done => break done,
        }
    };
    conn.busy_timeout(BUSY_WAIT)?;
    Ok(done?.pages)
}

/// What a checkpoint did.
#[derive(Debug, Default, Clone, Copy)]
struct CheckpointOutcome {
    /// Whether readers, or another program, kept it from doing all that its mode promises.
    is_held_up: bool,
    /// Pages of the WAL that are copied.
    pages: u32,
}

/// One checkpoint.
///
/// # Errors
/// As [`checkpoint`].
fn attempt(conn: &Connection, how: &str) -> Result<CheckpointOutcome> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    let begun = Instant::now();
    // Columns: busy flag, pages in the WAL, pages copied.
    let outcome = conn.query_row(&sql, [], |row| {
        let pages = u32::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
        Ok(CheckpointOutcome { is_held_up: row.get(0)?, pages })
    });
    COUNTERS.wal_checkpoints.observe_time(begun.elapsed());
    match outcome.map_err(StoreError::from) {
        Err(error) if !error.kind.leaves_doubt() => Ok(CheckpointOutcome::default()),
        outcome => outcome,
    }
}

/// Rewrites the frames that an earlier process left in the WAL, so that the next fsync writes them
/// to the disk. Call before the first durable commit.
///
/// An fsync of that process may have failed and its error been lost. The kernel then treats those
/// pages as clean, and no later fsync writes them. After a power loss, SQLite would ignore every
/// frame after the missing ones.
///
/// # Errors
/// Another program writes for too long, or the WAL cannot be read or written.
pub fn rewrite_frames(conn: &Connection) -> Result<()> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let written = wal_shim::rewrite_wal(conn);
    // Fails only if there is nothing to roll back.
    let _ = conn.execute_batch("ROLLBACK");
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::delta::sqlite::file::connect::{self, Role};

    #[test]
    fn readers_of_the_newest_snapshot_hold_nothing_up_though_they_overlap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        drop(File::create(&path).unwrap());
        let writer = connect::open(&path, Role::Writer).unwrap();
        connect::prepare_to_write(&writer).unwrap();
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        let readers = [0; 2].map(|_| connect::open(&path, Role::Reader).unwrap());
        let begin = |reader: &Connection| reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        let end = |reader: &Connection| reader.execute_batch("COMMIT").unwrap();
        readers.iter().for_each(begin);
        writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_done = &is_done;
            let checkpoint = scope.spawn(move || {
                let begun = Instant::now();
                let pages = checkpoint_within(&writer, Duration::from_secs(5), "RESTART");
                is_done.store(true, Ordering::Relaxed);
                (pages.unwrap(), begun.elapsed())
            });
            // It waits for the slot of both; they take it for the newest snapshot in between.
            thread::sleep(Duration::from_millis(10));
            readers.iter().for_each(end);
            readers.iter().for_each(begin);
            while !is_done.load(Ordering::Relaxed) {
                for reader in &readers {
                    thread::sleep(Duration::from_millis(1));
                    end(reader);
                    begin(reader);
                }
            }
            let (pages, took) = checkpoint.join().unwrap();
            assert!(pages > 0);
            assert!(took < Duration::from_secs(3), "{took:?}");
        });
    }
}
