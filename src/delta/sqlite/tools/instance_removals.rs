//! Removes instances with their sessions, so that a kill at any point leaves nothing that blocks
//! the next creation.
//!
//! In one transaction the registry forgets the instance and records that their files are to be
//! deleted (the table `going`). Then
//! their files are renamed away, which the registry records before another session may have the
//! name; deleting them may take long. The next start continues where a killed server was.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{OptionalExtension, TransactionBehavior, params};

use super::instances::{InstanceRegistry, RegisteredInstance, as_stored, encoded, instance_of};
use super::removal::remove_file_or_dir;
use crate::delta::Result;
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::lock::{self, SessionLock};
use crate::delta::sqlite::file::session::session_files;

/// Begins the names of files that are to be deleted; a tag and a number follow.
const PENDING_PREFIX: &str = ".gone-";

/// Whether an instance is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalStart {
    /// The registry has it no more, and the deletion of its sessions is pending.
    Begun(RegisteredInstance),
    /// It is kept.
    Kept,
    /// It was used later, at this time of the registry's clock, in milliseconds.
    Used(u64),
    /// The registry does not have it.
    Unknown,
}

/// The sessions of an instance that is removed.
#[derive(Debug, Clone, Copy)]
pub struct RemovedSessions<'a> {
    /// The name of the removal.
    pub tag: &'a str,
    /// The session files.
    pub sessions: &'a [PathBuf],
}

/// A session of a removed instance, whose files are to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingDeletion {
    /// The name of the removal.
    pub tag: String,
    /// The session file, as it was.
    pub session: PathBuf,
    /// Its files were renamed away: another session may have its name.
    pub is_renamed: bool,
}

impl InstanceRegistry {
    /// Forgets an instance and records the deletion of its sessions, unless it is kept or was used
    /// after `unused_ms`. Synced on return.
    ///
    /// # Errors
    /// The registry cannot be written: nothing has changed.
    pub fn begin_removal(
        &self,
        path: &str,
        unused_ms: u64,
        RemovedSessions { tag, sessions }: RemovedSessions<'_>,
    ) -> Result<RemovalStart> {
        let now = self.now_ms();
        let mut conn = self.conn.lock();
        let txn = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sql = "SELECT path, mounts, used, kept FROM instance WHERE path = ?1";
        let found = txn.query_row(sql, [path], |row| Ok((instance_of(row, now)?, row.get(3)?)));
        let instance = match found.optional()? {
            None => return Ok(RemovalStart::Unknown),
            Some((_, true)) => return Ok(RemovalStart::Kept),
            Some((instance, false)) if instance.used_ms > unused_ms => {
                return Ok(RemovalStart::Used(instance.used_ms));
            }
            Some((instance, false)) => instance,
        };
        txn.execute("DELETE FROM instance WHERE path = ?1", [path])?;
        for session in sessions {
            let sql = "INSERT INTO going (tag, session) VALUES (?1, ?2)";
            txn.execute(sql, params![tag, session.as_os_str().as_bytes()])?;
        }
        txn.execute("UPDATE clock SET ms = max(ms, ?1)", [as_stored(now)])?;
        txn.commit()?;
        Ok(RemovalStart::Begun(instance))
    }

    /// Takes a removal back whose files all have their names. The instance counts as used now.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn cancel_removal(&self, instance: &RegisteredInstance, tag: &str) -> Result<()> {
        let now = as_stored(self.now_ms());
        let mut conn = self.conn.lock();
        let txn = conn.transaction()?;
        let sql = "INSERT OR IGNORE INTO instance (path, mounts, used) VALUES (?1, ?2, ?3)";
        txn.execute(sql, params![instance.path, encoded(&instance.mounts), now])?;
        txn.execute("DELETE FROM going WHERE tag = ?1", [tag])?;
        Ok(txn.commit()?)
    }

    /// Records that the files of sessions were renamed away, of all or of none. Synced on return.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn renamed(&self, pending: &[PendingDeletion]) -> Result<()> {
        let mut conn = self.conn.lock();
        let txn = conn.transaction()?;
        for pending in pending {
            let sql = "UPDATE going SET is_renamed = 1 WHERE tag = ?1 AND session = ?2";
            txn.execute(sql, params![pending.tag, pending.session.as_os_str().as_bytes()])?;
        }
        Ok(txn.commit()?)
    }

    /// Records that the files of a session no longer exist.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn deleted(&self, pending: &PendingDeletion) -> Result<()> {
        let sql = "DELETE FROM going WHERE tag = ?1 AND session = ?2";
        let session = pending.session.as_os_str().as_bytes();
        self.conn.lock().execute(sql, params![pending.tag, session])?;
        Ok(())
    }

    /// The paths of the instances that are kept, without their tokens.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn kept(&self) -> Result<HashSet<String>> {
        let conn = self.conn.lock();
        let mut statement = conn.prepare_cached("SELECT path FROM instance WHERE kept")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The sessions whose removal has not ended.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn pending_deletions(&self) -> Result<Vec<PendingDeletion>> {
        let conn = self.conn.lock();
        let mut statement = conn.prepare_cached("SELECT tag, session, is_renamed FROM going")?;
        let rows = statement.query_map([], |row| {
            let session: Vec<u8> = row.get(1)?;
            let session = PathBuf::from(OsStr::from_bytes(&session));
            Ok(PendingDeletion { tag: row.get(0)?, session, is_renamed: row.get(2)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// A session that no server and no command has. Dropping it lets others have it.
pub struct UnusedSession {
    /// When one of its files was last changed; `None` if there is none.
    changed: Option<SystemTime>,
    _lock: SessionLock,
}

impl UnusedSession {
    /// The session `session`, whose files are to be removed.
    ///
    /// # Errors
    /// A server or a command has it, or its directory cannot be written.
    pub fn take(session: &Path) -> std::result::Result<Self, OpenError> {
        // Before the lock, which makes a file.
        let mut files = session_files(session);
        files.retain(|file| !is_lock(session, file));
        let changed = files.iter().filter_map(|file| file.symlink_metadata().ok()?.modified().ok());
        let changed = changed.max();
        let lock = SessionLock::take(session, true)?;
        Ok(Self { changed, _lock: lock })
    }

    /// When one of its files was last changed, by the clock of the system.
    pub fn changed(&self) -> Option<SystemTime> {
        self.changed
    }
}

/// Renames the files of a session away; synced on return. The session file is the last one, so
/// that none remains beside a new one.
///
/// # Errors
/// A file cannot be renamed.
pub fn rename_away(pending: &PendingDeletion) -> io::Result<()> {
    for (file, away) in names(pending).into_iter().rev() {
        match fs::rename(file, away) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_dir(pending)
}

/// Gives the files back their names, as far as they were renamed.
///
/// # Errors
/// A file cannot be renamed.
pub fn rename_back(pending: &PendingDeletion) -> io::Result<()> {
    for (file, away) in names(pending) {
        match fs::rename(away, file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_dir(pending)
}

/// Deletes the files that were renamed away.
///
/// # Errors
/// A file cannot be deleted.
pub fn delete_renamed(pending: &PendingDeletion) -> io::Result<()> {
    for (_, away) in names(pending) {
        remove_file_or_dir(&away)?;
    }
    Ok(())
}

/// The files of a session, and their names while they go: short, so that they fit.
fn names(pending: &PendingDeletion) -> Vec<(PathBuf, PathBuf)> {
    let files = session_files(&pending.session).into_iter().enumerate();
    let others = files.filter(|(_, file)| !is_lock(&pending.session, file));
    let named = others.map(|(index, file)| {
        let away = file.with_file_name(format!("{PENDING_PREFIX}{}-{index}", pending.tag));
        (file, away)
    });
    named.collect()
}

/// Whether `file` is the lock of a session, which its holder removes.
fn is_lock(session: &Path, file: &Path) -> bool {
    let lock = crate::delta::sqlite::file::connect::companion_path(session, lock::SUFFIX);
    file == lock
}

fn sync_dir(pending: &PendingDeletion) -> io::Result<()> {
    match pending.session.parent().map(File::open) {
        // A directory that is gone has no files.
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        Some(dir) => dir?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        PendingDeletion, RemovalStart, RemovedSessions, delete_renamed, rename_away, rename_back,
    };
    use crate::delta::sqlite::tools::instances::{InstanceRegistry, keep_instance};

    #[test]
    fn an_instance_that_is_kept_or_was_used_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        let (registry, _) = InstanceRegistry::open(&file).unwrap();
        registry.complete().unwrap();
        let sessions = [dir.path().join("s.db")];
        let pending = RemovedSessions { tag: "t", sessions: &sessions };
        registry.record("/a", &[]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        registry.save_uses(&[("/a".to_owned(), 10)]).unwrap();
        let used = registry.all().unwrap()[0].used_ms;
        assert_eq!(registry.begin_removal("/b", u64::MAX, pending).unwrap(), RemovalStart::Unknown);
        let said = registry.begin_removal("/a", used - 1, pending).unwrap();
        assert_eq!(said, RemovalStart::Used(used));
        keep_instance(&file, "/a", true).unwrap();
        assert_eq!(registry.begin_removal("/a", u64::MAX, pending).unwrap(), RemovalStart::Kept);
        assert_eq!(
            (registry.all().unwrap().len(), registry.pending_deletions().unwrap().len()),
            (1, 0)
        );
        keep_instance(&file, "/a", false).unwrap();
        let begun = registry.begin_removal("/a", u64::MAX, pending).unwrap();
        let RemovalStart::Begun(instance) = begun else { panic!("{begun:?}") };
        assert_eq!(
            (registry.all().unwrap().len(), registry.pending_deletions().unwrap().len()),
            (0, 1)
        );
        registry.cancel_removal(&instance, "t").unwrap();
        assert_eq!(
            (registry.all().unwrap().len(), registry.pending_deletions().unwrap().len()),
            (1, 0)
        );
    }

    #[test]
    fn files_go_with_those_beside_them_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("s.db");
        let pending =
            PendingDeletion { tag: "t".to_owned(), session: session.clone(), is_renamed: false };
        fs::write(&session, "session").unwrap();
        fs::create_dir(dir.path().join("s.db-undo")).unwrap();
        fs::write(dir.path().join("s.db-undo/kept"), "kept").unwrap();
        fs::write(dir.path().join("other.db"), "other").unwrap();
        rename_away(&pending).unwrap();
        assert!(!session.exists() && !dir.path().join("s.db-undo").exists());
        rename_back(&pending).unwrap();
        assert_eq!(fs::read(&session).unwrap(), b"session");
        assert!(dir.path().join("s.db-undo/kept").exists());
        rename_away(&pending).unwrap();
        // A new session of this name stays.
        fs::write(&session, "new").unwrap();
        delete_renamed(&pending).unwrap();
        delete_renamed(&pending).unwrap();
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["other.db", "s.db"]);
        assert_eq!(fs::read(&session).unwrap(), b"new");
    }
}
