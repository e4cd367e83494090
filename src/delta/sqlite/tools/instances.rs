//! The registry of a server's instances: a SQLite file beside the exports file, which has what is
//! needed to recognise the handles of exports that templates made, without opening their sessions,
//! and when they were used.
//!
//! Its clock advances only while a server has the registry: neither a clock that is set nor the
//! time between two servers makes an instance older. A crash loses what passed since the last
//! [`InstanceRegistry::save_uses`].
//!
//! Handle keys are secrets, so only the owner can read the file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::delta::{Result, StoreError};

/// Size of a session's handle key, in bytes.
const KEY_BYTES: usize = 16;

/// Size of a mount's keys in a row: the handle key, and the fsid, big-endian.
const ROW_BYTES: usize = KEY_BYTES + 8;

/// The version of the file's layout (`user_version`). Version 1 had neither uses nor removals.
const VERSION: i64 = 2;

/// How long a change waits for another program that uses the registry.
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// The same of [`keep_instance`].
const KEEP_BUSY_WAIT: Duration = Duration::from_secs(10);

/// How long a server waits for the lock of the registry, and how long between attempts.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The tables. Columns that version 1 had not are added by [`upgrade`].
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS instance (
      path TEXT PRIMARY KEY NOT NULL,
      mounts BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS going (
      tag TEXT NOT NULL,
      session BLOB NOT NULL,
      is_renamed INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (tag, session)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS clock (ms INTEGER NOT NULL);
    INSERT INTO clock SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM clock);";

/// The handle key and the fsid of a session.
pub type SessionKeys = ([u8; KEY_BYTES], u64);

/// The instances that a server has made.
pub struct InstanceRegistry {
    pub(super) conn: Mutex<Connection>,
    /// The clock when it was opened, in milliseconds.
    opened_ms: u64,
    opened: Instant,
    /// Locked, so that one server at a time has the registry. After `conn`: SQLite's locks of the
    /// file would go with it.
    _lock: File,
}

/// An instance in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredInstance {
    /// The path without its token.
    pub path: String,
    /// The keys of its mounts' sessions.
    pub mounts: Vec<SessionKeys>,
    /// When it was last used, on the registry's clock, in milliseconds.
    pub used_ms: u64,
}

/// Locks the registry's file.
///
/// A program that the server before has just started has its descriptors for a moment, and with
/// them the lock.
fn lock_soon(file: &File) -> Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return Err(StoreError::io("another server serves this exports file"));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(())
}

impl InstanceRegistry {
    /// Opens the registry, or creates an empty one; also returns whether it is not
    /// [complete](Self::complete).
    ///
    /// # Errors
    /// The file is not a registry of this version, or cannot be written.
    pub fn open(file: &Path) -> Result<(Self, bool)> {
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        match options {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(StoreError::io(format!("cannot create it: {error}")));
            }
            _ => {}
        }
        let lock = OpenOptions::new().read(true).write(true).open(file);
        let lock = lock.map_err(|error| StoreError::io(format!("cannot open it: {error}")))?;
        lock_soon(&lock)?;
        let mut conn = connect(file, BUSY_WAIT)?;
        let version = version_of(&conn)?;
        if version > VERSION {
            return Err(other_version(version));
        }
        if version < VERSION {
            upgrade(&mut conn, version)?;
        }
        let ms: i64 = conn.query_row("SELECT ms FROM clock", [], |row| row.get(0))?;
        let (opened_ms, opened) = (ms.max(0).cast_unsigned(), Instant::now());
        Ok((Self { conn: Mutex::new(conn), opened_ms, opened, _lock: lock }, version == 0))
    }

    /// Records that a new registry has all instances whose sessions exist.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn complete(&self) -> Result<()> {
        Ok(self.conn.lock().pragma_update(None, "user_version", VERSION)?)
    }

    /// The registry's clock now, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.opened_ms.saturating_add(passed)
    }

    /// All instances.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn all(&self) -> Result<Vec<RegisteredInstance>> {
        let now = self.now_ms();
        let conn = self.conn.lock();
        let mut statement = conn.prepare("SELECT path, mounts, used FROM instance")?;
        let rows = statement.query_map([], |row| instance_of(row, now))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Records an instance, used now; synced on return.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn record(&self, path: &str, mounts: &[SessionKeys]) -> Result<()> {
        let used = as_stored(self.now_ms());
        put(&self.conn.lock(), path, mounts, used)
    }

    /// Records several instances in one transaction, each used now; synced on return.
    ///
    /// # Errors
    /// The registry cannot be written: none is recorded.
    pub fn record_all(&self, instances: &[(String, Vec<SessionKeys>)]) -> Result<()> {
        let used = as_stored(self.now_ms());
        let mut conn = self.conn.lock();
        let txn = conn.transaction()?;
        for (path, mounts) in instances {
            put(&txn, path, mounts, used)?;
        }
        Ok(txn.commit()?)
    }

    /// Records when instances were used, and how far the clock is; synced on return.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn save_uses(&self, uses: &[(String, u64)]) -> Result<()> {
        let now = as_stored(self.now_ms());
        let mut conn = self.conn.lock();
        let txn = conn.transaction()?;
        for (path, used_ms) in uses {
            let sql = "UPDATE instance SET used = max(used, ?2) WHERE path = ?1";
            txn.prepare_cached(sql)?.execute(params![path, as_stored(*used_ms)])?;
        }
        txn.execute("UPDATE clock SET ms = max(ms, ?1)", [now])?;
        Ok(txn.commit()?)
    }

    /// Removes an instance, if it is there.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn remove(&self, path: &str) -> Result<()> {
        self.conn.lock().execute("DELETE FROM instance WHERE path = ?1", params![path])?;
        Ok(())
    }
}

/// Has an instance stay however long it is not used, or not any more; returns whether it stayed
/// before. `None` if the registry `file` has no such instance. A server may have the registry.
///
/// # Errors
/// The file is no registry of this version, or cannot be written.
pub fn keep_instance(file: &Path, path: &str, is_kept: bool) -> Result<Option<bool>> {
    let mut conn = connect(file, KEEP_BUSY_WAIT)?;
    match version_of(&conn)? {
        VERSION => {}
        other => return Err(other_version(other)),
    }
    let txn = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let sql = "SELECT kept FROM instance WHERE path = ?1";
    let was: Option<bool> = txn.query_row(sql, [path], |row| row.get(0)).optional()?;
    if was.is_some_and(|was| was != is_kept) {
        let sql = "UPDATE instance SET kept = ?2 WHERE path = ?1";
        txn.execute(sql, params![path, is_kept])?;
    }
    txn.commit()?;
    Ok(was)
}

fn connect(file: &Path, busy: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(busy)?;
    // No WAL: another process that opens the file and ends would remove it.
    conn.pragma_update(None, "journal_mode", "TRUNCATE")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    Ok(conn)
}

fn put(conn: &Connection, path: &str, mounts: &[SessionKeys], used: i64) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO instance (path, mounts, used) VALUES (?1, ?2, ?3)
         ON CONFLICT (path) DO UPDATE SET mounts = excluded.mounts, used = excluded.used",
    )?;
    statement.execute(params![path, encoded(mounts), used])?;
    Ok(())
}

fn version_of(conn: &Connection) -> Result<i64> {
    Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn other_version(version: i64) -> StoreError {
    let text = format!("version {version} of the registry; this program knows {VERSION}");
    StoreError::corrupt(text)
}

/// Adds what a registry of an earlier version lacks; each instance counts as used now. One that is
/// not complete stays so.
fn upgrade(conn: &mut Connection, version: i64) -> Result<()> {
    let txn = conn.transaction()?;
    txn.execute_batch(TABLES)?;
    let sql = "SELECT count(*) FROM pragma_table_info('instance') WHERE name = 'used'";
    let has_uses: bool = txn.query_row(sql, [], |row| row.get(0))?;
    if !has_uses {
        txn.execute_batch(
            "ALTER TABLE instance ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
             ALTER TABLE instance ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;",
        )?;
    }
    if version > 0 {
        txn.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(txn.commit()?)
}

/// The instance in a row with `path`, `mounts` and `used`. A use in the future is one now.
pub(super) fn instance_of(
    row: &rusqlite::Row<'_>,
    now_ms: u64,
) -> rusqlite::Result<RegisteredInstance> {
    let used: i64 = row.get(2)?;
    let used_ms = u64::try_from(used).unwrap_or(0).min(now_ms);
    let mounts = parse(&row.get::<_, Vec<u8>>(1)?);
    Ok(RegisteredInstance { path: row.get(0)?, mounts, used_ms })
}

/// A time of the clock as SQLite stores it.
pub(super) fn as_stored(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// The keys of mounts as a row has them.
pub(super) fn encoded(mounts: &[SessionKeys]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mounts.len() * ROW_BYTES);
    for (key, fsid) in mounts {
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&fsid.to_be_bytes());
    }
    bytes
}

fn parse(mounts: &[u8]) -> Vec<SessionKeys> {
    let keys = |row: &[u8; ROW_BYTES]| {
        let (key, fsid) = row.split_at(KEY_BYTES);
        let key = key.first_chunk().copied().unwrap_or_default();
        (key, fsid.first_chunk().copied().map_or(0, u64::from_be_bytes))
    };
    mounts.as_chunks::<ROW_BYTES>().0.iter().map(keys).collect()
}

#[cfg(test)]
mod tests {
    use super::{InstanceRegistry, keep_instance};

    #[test]
    fn an_instance_is_what_was_recorded_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        let (registry, is_new) = InstanceRegistry::open(&file).unwrap();
        assert!(is_new);
        let keys = [([7; 16], u64::MAX), ([9; 16], 1)];
        registry.record("/chat/a", &[([1; 16], 2)]).unwrap();
        let all = [("/chat/a".to_owned(), keys.to_vec()), ("/chat/b".to_owned(), Vec::new())];
        registry.record_all(&all).unwrap();
        registry.remove("/chat/b").unwrap();
        registry.complete().unwrap();
        drop(registry);
        let (registry, is_new) = InstanceRegistry::open(&file).unwrap();
        assert!(!is_new);
        let all = registry.all().unwrap();
        assert_eq!((all.len(), all[0].path.as_str()), (1, "/chat/a"));
        assert_eq!(all[0].mounts, keys);
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "handle keys are secrets");
    }

    #[test]
    fn a_registry_of_another_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        drop(InstanceRegistry::open(&file).unwrap());
        assert!(InstanceRegistry::open(&file).unwrap().1, "it was not completed");
        let conn = rusqlite::Connection::open(&file).unwrap();
        conn.pragma_update(None, "user_version", 3).unwrap();
        drop(conn);
        let error = InstanceRegistry::open(&file).err().unwrap().to_string();
        assert!(error.contains("version 3"), "{error}");
    }

    #[test]
    fn the_clock_stands_still_between_servers_and_no_use_is_in_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        let (registry, _) = InstanceRegistry::open(&file).unwrap();
        registry.complete().unwrap();
        registry.record("/a", &[]).unwrap();
        registry.save_uses(&[("/a".to_owned(), 1 << 40), ("/b".to_owned(), 1)]).unwrap();
        let saved = registry.now_ms();
        drop(registry);
        std::thread::sleep(std::time::Duration::from_millis(300));
        let reopened = std::time::Instant::now();
        let (registry, _) = InstanceRegistry::open(&file).unwrap();
        let now = registry.now_ms();
        let passed = u64::try_from(reopened.elapsed().as_millis()).unwrap();
        assert!(now <= saved + passed, "{saved} {now}");
        let all = registry.all().unwrap();
        assert_eq!(all.len(), 1, "a use makes no instance");
        assert!(all[0].used_ms <= registry.now_ms());
    }

    #[test]
    fn what_an_earlier_version_wrote_was_used_now_and_can_be_kept_then() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        let conn = rusqlite::Connection::open(&file).unwrap();
        conn.execute_batch(
            "CREATE TABLE instance (path TEXT PRIMARY KEY NOT NULL, mounts BLOB NOT NULL)
             WITHOUT ROWID;
             INSERT INTO instance VALUES ('/a', zeroblob(24)); PRAGMA user_version = 1;",
        )
        .unwrap();
        drop(conn);
        let error = keep_instance(&file, "/a", true).unwrap_err().to_string();
        assert!(error.contains("version 1"), "{error}");
        let (registry, is_new) = InstanceRegistry::open(&file).unwrap();
        assert!(!is_new);
        let all = registry.all().unwrap();
        assert_eq!((all[0].used_ms, all[0].mounts.len()), (0, 1));
        assert!(registry.now_ms() < 60_000);
        // Beside a server.
        assert_eq!(keep_instance(&file, "/a", true).unwrap(), Some(false));
        assert_eq!(keep_instance(&file, "/a", false).unwrap(), Some(true));
        assert_eq!(keep_instance(&file, "/b", true).unwrap(), None);
    }
}
