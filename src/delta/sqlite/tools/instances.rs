//! The registry of a server's instances: a SQLite file beside the exports file, which has what is
//! needed to recognise the handles of exports that templates made, without opening their sessions.
//!
//! It holds nothing that cannot be read from the sessions. Handle keys are secrets, so only the
//! owner can read the file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, params};

use crate::delta::{Result, StoreError};

/// Size of a session's handle key, in bytes.
const KEY_BYTES: usize = 16;

/// Size of a mount's keys in a row: the handle key, and the fsid, big-endian.
const ROW_BYTES: usize = KEY_BYTES + 8;

/// The version of the file's layout (`user_version`).
const VERSION: i64 = 1;

/// How long a change waits for another program that reads the registry.
const BUSY_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

/// The handle key and the fsid of a session.
pub type SessionKeys = ([u8; KEY_BYTES], u64);

/// The instances that a server has made.
pub struct InstanceRegistry {
    conn: Mutex<Connection>,
    /// Locked, so that one server at a time has the registry. After `conn`: SQLite's locks of the
    /// file would go with it.
    _lock: File,
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
        if lock.try_lock().is_err() {
            return Err(StoreError::io("another server serves this exports file".to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(file, flags)?;
        conn.busy_timeout(BUSY_WAIT)?;
        // No WAL: another process that opens the file and ends would remove it.
        conn.pragma_update(None, "journal_mode", "TRUNCATE")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            VERSION => {}
            0 => conn.execute_batch(
                "BEGIN;
                 CREATE TABLE IF NOT EXISTS instance (
                   path TEXT PRIMARY KEY NOT NULL,
                   mounts BLOB NOT NULL
                 ) WITHOUT ROWID;
                 COMMIT;",
            )?,
            other => {
                let text = format!("version {other} of the registry; this program knows {VERSION}");
                return Err(StoreError::corrupt(text));
            }
        }
        Ok((Self { conn: Mutex::new(conn), _lock: lock }, version == 0))
    }

    /// Records that a new registry has all instances whose sessions exist.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn complete(&self) -> Result<()> {
        Ok(self.conn.lock().pragma_update(None, "user_version", VERSION)?)
    }

    /// All instances: their paths without tokens, and the keys of their mounts' sessions.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn all(&self) -> Result<Vec<(String, Vec<SessionKeys>)>> {
        let conn = self.conn.lock();
        let mut statement = conn.prepare("SELECT path, mounts FROM instance")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let parsed = rows.map(|row| row.map(|(path, mounts)| (path, parse(&mounts))));
        Ok(parsed.collect::<rusqlite::Result<_>>()?)
    }

    /// Records an instance; synced on return.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn record(&self, path: &str, mounts: &[SessionKeys]) -> Result<()> {
        let mut bytes = Vec::with_capacity(mounts.len() * ROW_BYTES);
        for (key, fsid) in mounts {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&fsid.to_be_bytes());
        }
        let conn = self.conn.lock();
        let mut statement = conn.prepare_cached(
            "INSERT INTO instance (path, mounts) VALUES (?1, ?2)
             ON CONFLICT (path) DO UPDATE SET mounts = excluded.mounts",
        )?;
        statement.execute(params![path, bytes])?;
        Ok(())
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
    use super::InstanceRegistry;

    #[test]
    fn an_instance_is_what_was_recorded_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        let (registry, is_new) = InstanceRegistry::open(&file).unwrap();
        assert!(is_new);
        let keys = [([7; 16], u64::MAX), ([9; 16], 1)];
        registry.record("/chat/a", &[([1; 16], 2)]).unwrap();
        registry.record("/chat/a", &keys).unwrap();
        registry.record("/chat/b", &[]).unwrap();
        registry.remove("/chat/b").unwrap();
        registry.complete().unwrap();
        drop(registry);
        let (registry, is_new) = InstanceRegistry::open(&file).unwrap();
        assert!(!is_new);
        assert_eq!(registry.all().unwrap(), [("/chat/a".to_owned(), keys.to_vec())]);
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
        conn.pragma_update(None, "user_version", 2).unwrap();
        drop(conn);
        let error = InstanceRegistry::open(&file).err().unwrap().to_string();
        assert!(error.contains("version 2"), "{error}");
    }
}
