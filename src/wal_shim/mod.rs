//! A VFS under SQLite that writes and reads a session's files in larger pieces than pages.
//!
//! SQLite writes each frame of the WAL with two calls (header and page), checkpoints page by page,
//! and reads content page by page. A call costs more than its bytes: 14 frames took 68 µs one by
//! one, and take 9 µs in one piece (docs/decisions/0029-one-write-per-commit.md).
//!
//! During a commit, SQLite appends frame after frame; the header of the last frame marks it as the
//! last. The VFS holds the frames back until then. The write of the last page writes all of them to
//! the file, and fails if that fails: before an fsync, and before SQLite reports the commit. Any
//! other call on the file first writes the held frames. Frames that are still held after the commit
//! has ended belong to a failed commit. They are dropped, because another process may be writing
//! there. Outside a commit only a frame's header is held, until its page is written.
//!
//! Without the feature `fast-io`, SQLite's own VFS is used: same results, slower.
//!
//! | File | Content |
//! |---|---|
//! | `wal_write_buffer` | which writes to the WAL are held back, and until when |
//! | `db_extender` | extends the database file during a checkpoint |
//! | `wal_prefetch` | reads several frames at once during a checkpoint |
//! | `rewrite` | rewrites the WAL that a dead process left |
//! | `read_ahead` | reads several pages of the database at once |
//! | `filesystem` | which filesystems report each failed write separately |
//! | `vfs` | the C interface |

mod db_extender;
mod filesystem;
mod read_ahead;
mod rewrite;
mod vfs;
mod wal_prefetch;
mod wal_write_buffer;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

pub use filesystem::tells_each_write;
pub use vfs::{name, rewrite_wal, sees_wal, sync_database};

/// Large writes end at a multiple of this many bytes where possible. The page cache then uses
/// folios of that size, which are cheapest to write and to sync.
const PIECE_BYTES: usize = 64 << 10;

/// Identifies one commit of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalCommit(u64);

static COMMITS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT: Cell<Option<WalCommit>> = const { Cell::new(None) };
    static STARTED_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Runs `commit`, which must be SQLite's `COMMIT` and nothing else. The connection must not
/// checkpoint automatically (`wal_autocheckpoint = 0`): an automatic checkpoint runs when other
/// connections may write to the WAL again, and until the commit ends this VFS holds frames back.
pub fn committing<T>(commit: impl FnOnce() -> T) -> T {
    let _until_done = UntilDone;
    CURRENT.set(Some(WalCommit(COMMITS.fetch_add(1, Ordering::Relaxed))));
    commit()
}

/// Guard that ends a commit, also after a panic.
struct UntilDone;

impl Drop for UntilDone {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Whether a commit of this thread has restarted a WAL since the last call. A transaction that
/// finds the whole WAL checkpointed overwrites it from the start. The WAL may be that of another
/// session, so the caller must tolerate false positives.
pub fn has_restarted() -> bool {
    STARTED_OVER.take()
}

/// Records that this thread restarts a WAL.
fn note_start() {
    STARTED_OVER.set(true);
}

/// The commit that this thread is running, if any.
fn current_commit() -> Option<WalCommit> {
    CURRENT.get()
}

#[cfg(feature = "fast-io")]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use rusqlite::{Connection, OpenFlags, params};

    use super::*;

    /// A deterministic random generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    type Rows = BTreeMap<i64, Vec<u8>>;

    /// A small page cache, so that transactions write to the WAL before they commit.
    fn open(path: &Path, auto_vacuum: u32, synchronous: &str) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags_and_vfs(path, flags, name().unwrap()).unwrap();
        conn.pragma_update(None, "auto_vacuum", auto_vacuum).unwrap();
        let mode: String =
            conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        conn.pragma_update(None, "synchronous", synchronous).unwrap();
        conn.execute_batch(
            "PRAGMA cache_size = 12; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE t (id INTEGER PRIMARY KEY, content BLOB)",
        )
        .unwrap();
        conn
    }

    fn rows(conn: &Connection) -> Rows {
        let mut statement = conn.prepare("SELECT id, content FROM t").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Asserts that the file holds these rows for a new process, also after a crash of this one.
    fn assert_holds(path: &Path, expected: &Rows) {
        let after_crash = tempfile::tempdir().unwrap();
        let copy = after_crash.path().join("copy.db");
        std::fs::copy(path, &copy).unwrap();
        std::fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
        for path in [path, &copy] {
            let conn = Connection::open(path).unwrap();
            assert!(rows(&conn) == *expected, "other rows in {}", path.display());
            let check: String =
                conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
    }

    fn change(conn: &Connection, random: &mut Random, rows: &mut Rows) {
        let id = random.below(60) as i64;
        if random.below(4) == 0 {
            conn.execute("DELETE FROM t WHERE id = ?1", [id]).unwrap();
            rows.remove(&id);
        } else {
            let content = vec![random.below(256) as u8; random.below(12_000) as usize];
            conn.execute("REPLACE INTO t VALUES (?1, ?2)", params![id, content]).unwrap();
            rows.insert(id, content);
        }
    }

    /// A transaction that may be rolled back, in part or as a whole.
    fn transaction(conn: &Connection, random: &mut Random, rows: &mut Rows) {
        let before = rows.clone();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for _ in 0..random.below(12) {
            let at_savepoint = rows.clone();
            conn.execute_batch("SAVEPOINT part").unwrap();
            for _ in 0..1 + random.below(6) {
                change(conn, random, rows);
            }
            if random.below(3) == 0 {
                conn.execute_batch("ROLLBACK TO part").unwrap();
                *rows = at_savepoint;
            }
            conn.execute_batch("RELEASE part").unwrap();
        }
        if random.below(5) == 0 {
            conn.execute_batch("ROLLBACK").unwrap();
            *rows = before;
        } else {
            committing(|| conn.execute_batch("COMMIT")).unwrap();
        }
        if random.below(10) == 0 {
            conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        }
    }

    #[test]
    fn sqlite_finds_what_it_wrote() {
        for (auto_vacuum, synchronous) in [(0, "NORMAL"), (1, "NORMAL"), (0, "FULL")] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a.db");
            let conn = open(&path, auto_vacuum, synchronous);
            let (mut random, mut rows) = (Random(u64::from(auto_vacuum) + 5), Rows::new());
            for _ in 0..120 {
                transaction(&conn, &mut random, &mut rows);
                assert_holds(&path, &rows);
            }
            assert!(rows.len() > 10, "{} rows", rows.len());
        }
    }

    #[test]
    fn a_checkpoint_makes_the_database_grow_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let conn = open(&path, 0, "NORMAL");
        let length = || std::fs::metadata(&path).unwrap().len();
        let checkpoint = |how| {
            let sql = format!("PRAGMA wal_checkpoint({how})");
            conn.query_row(&sql, [], |_| Ok(())).unwrap();
        };
        checkpoint("TRUNCATE");
        let before = length();
        conn.execute("INSERT INTO t VALUES (1, ?1)", [vec![1; 10_000]]).unwrap();
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(rows(&reader).len(), 1);
        conn.execute("INSERT INTO t VALUES (2, ?1)", [vec![2; 2_000_000]]).unwrap();
        // The reader needs the WAL from here on: the checkpoint copies a few pages and extends the
        // file.
        checkpoint("PASSIVE");
        let in_pieces = tells_each_write(&path);
        let after = length();
        assert_eq!(after == 64 << 10, in_pieces, "{after} bytes, of {before} before");
        assert_eq!(rows(&reader).len(), 1);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(rows(&reader)[&2], vec![2; 2_000_000]);
        checkpoint("TRUNCATE");
        let pages: u32 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        assert_eq!(length(), u64::from(pages) * 4096);
        assert_eq!(rows(&Connection::open(&path).unwrap()), rows(&conn));
    }

    #[test]
    fn large_content_arrives_whole_whatever_a_checkpoint_stops_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let conn = open(&path, 0, "NORMAL");
        let reader = Connection::open(&path).unwrap();
        let (mut random, mut expected) = (Random(3), Rows::new());
        for round in 0..60 {
            if random.below(3) == 0 {
                let _in_a_transaction = reader.execute_batch("COMMIT");
                reader.execute_batch("BEGIN").unwrap();
                assert!(rows(&reader) == expected, "round {round}");
            }
            for _ in 0..random.below(4) {
                let id = random.below(12) as i64;
                let (length, salt) = (random.below(700_000), random.below(1 << 30));
                let content: Vec<u8> =
                    (0..length).map(|at| (((at / 5 + salt) * 0x9e37_79b9) >> 13) as u8).collect();
                committing(|| conn.execute("REPLACE INTO t VALUES (?1, ?2)", params![id, content]))
                    .unwrap();
                expected.insert(id, content);
            }
            conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
            assert_holds(&path, &expected);
        }
        let _in_a_transaction = reader.execute_batch("COMMIT");
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_holds(&path, &expected);
    }

    #[test]
    fn no_transaction_reads_what_another_one_read_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let conn = open(&path, 0, "NORMAL");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let reader = Connection::open_with_flags_and_vfs(&path, flags, name().unwrap()).unwrap();
        reader.pragma_update(None, "cache_size", 12).unwrap();
        for round in 1..6 {
            // All of one length, so that they use the same pages.
            let content = vec![round; 300_000];
            conn.execute("REPLACE INTO t VALUES (1, ?1)", [&content]).unwrap();
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            assert!(rows(&reader)[&1] == content, "round {round}");
        }
    }
}
