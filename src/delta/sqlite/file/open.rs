//! Opens an existing session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use rusqlite::{Connection, params};

use crate::delta::{NewThreads, Result, StoreError, UnacknowledgedOp};

use super::config::{self, SessionConfig};
use super::connect::{self, Role};
use super::error::OpenError;
use super::host::Host;
use super::lock::SessionLock;
use super::session::{OpenMode, Session, open_read_only};
use super::{epoch, probe};
use crate::delta::sqlite::table::replica;
use crate::delta::sqlite::table::{dentry, inode, meta, op, schema, tree_sum};

impl Session {
    /// Opens the session file `path`.
    ///
    /// [`OpenMode::Serve`] adds missing tables, columns and indexes to a file of another
    /// implementation (version 0.4 of the specification), in one transaction.
    ///
    /// # Errors
    /// See [`OpenError`]; the file is unchanged, and no other file was created beside it.
    pub fn open(path: &Path, mode: OpenMode, host: &Host) -> std::result::Result<Self, OpenError> {
        let path = &Self::existing(path)?;
        // The lock first, so that a file that another server in this process serves is not touched.
        let lock = lock(path, mode)?;
        let opened = Self::open_locked(path, mode, lock, host)?;
        let (path, config) = (path.to_owned(), &opened.config);
        match (mode, config.replica_of.clone(), config.moved_to.clone()) {
            // Changes would not reach the database.
            (OpenMode::Serve, Some(url), _) => Err(OpenError::Replica { path, url }),
            // Handles would name the objects of two trees.
            (OpenMode::Serve | OpenMode::ReadOnly, _, Some(url)) => {
                Err(OpenError::Moved { path, url })
            }
            _ => Ok(opened),
        }
    }

    /// Opens the session file `path` in [`OpenMode::Serve`], also a replica of a session in another
    /// store, and a session that was moved there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_any(path: &Path, host: &Host) -> std::result::Result<Self, OpenError> {
        let path = &Self::existing(path)?;
        let lock = SessionLock::take(path, true)?;
        Self::open_locked(path, OpenMode::Serve, Some(lock), host)
    }

    /// The canonical path of an existing regular file.
    pub(in crate::delta::sqlite) fn existing(
        path: &Path,
    ) -> std::result::Result<PathBuf, OpenError> {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(OpenError::Missing { path: path.to_owned() });
            }
            Err(error) => return Err(OpenError::io(path, error)),
        };
        if path.is_file() { Ok(path) } else { Err(OpenError::NotFile { path }) }
    }

    /// Opens an existing file at its canonical path, under the lock that `mode` needs.
    pub(in crate::delta::sqlite) fn open_locked(
        path: &Path,
        mode: OpenMode,
        lock: Option<SessionLock>,
        host: &Host,
    ) -> std::result::Result<Self, OpenError> {
        probe::check(path)?;
        let opened = match mode {
            OpenMode::Serve => prepare(path, host),
            OpenMode::ReadOnly | OpenMode::Inspect => look(path),
        }
        .map_err(|error| OpenError::store(path, error))?;
        if let Some(lock) = &lock {
            lock.hold_files(path);
        }
        let config = SessionConfig::load(&opened.conn, host)
            .map_err(|error| OpenError::store(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            mode,
            config,
            epoch: Arc::new(AtomicU64::new(opened.epoch)),
            boot_id: host.boot_id.clone(),
            late_op: opened.late_op,
            unacknowledged_ops: opened.unacknowledged_ops,
            at: None,
            background: Arc::new(NewThreads),
            memory: None,
            first: Mutex::new(Some(opened.conn)),
            row_notes: None,
            writing: Arc::new(AtomicBool::new(false)),
            lock: lock.map(Arc::new),
            wal: Arc::default(),
        })
    }
}

fn lock(path: &Path, mode: OpenMode) -> std::result::Result<Option<SessionLock>, OpenError> {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match mode {
        OpenMode::Serve => SessionLock::take(path, true).map(Some),
        OpenMode::ReadOnly => match SessionLock::take(path, false) {
            // Without permission to create a lock file, no server can write to the session either.
            Err(OpenError::Io { source, .. })
                if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
            {
                Ok(None)
            }
            taken => taken.map(Some),
        },
        OpenMode::Inspect => Ok(None),
    }
}

/// The result of opening a file.
struct OpenedFile {
    conn: Connection,
    epoch: u64,
    late_op: Option<i64>,
    unacknowledged_ops: Vec<UnacknowledgedOp>,
}

fn look(path: &Path) -> Result<OpenedFile> {
    let conn = open_read_only(path)?;
    let epoch = epoch::stored(&conn)?;
    Ok(OpenedFile { conn, epoch, late_op: None, unacknowledged_ops: Vec::new() })
}

/// Opens the writing connection, completes the schema and settles the epoch. Writes nothing if the
/// session was closed cleanly and no other program changed it.
fn prepare(path: &Path, host: &Host) -> Result<OpenedFile> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    let transaction =
        rusqlite::Transaction::new_unchecked(&conn, rusqlite::TransactionBehavior::Immediate)?;
    let changes = transaction.total_changes();
    if !schema::is_complete(&transaction)? {
        schema::complete(&transaction)?;
    }
    if meta::get::<i64>(&transaction, meta::FORMAT)?.is_none() {
        config::found(&transaction, host)?;
        inode::recount(&transaction)?;
    }
    tree_sum::compare(&transaction)?;
    recount_if_foreign(&transaction)?;
    if transaction.total_changes() != changes {
        // Another store lacks these changes.
        replica::put_mark(&transaction, None)?;
    }
    require_root(&transaction)?;
    let late_op = epoch::late_op(&transaction)?;
    let unacknowledged_ops = match late_op {
        Some(last) => op::unacknowledged_ops(&transaction, last, host.now)?,
        None => Vec::new(),
    };
    let epoch = epoch::load_or_advance(&transaction, host)?;
    // Synced (`prepare_to_write` set FULL): the epoch is on disk before any reply carries it.
    transaction.commit()?;
    Ok(OpenedFile { conn, epoch, late_op, unacknowledged_ops })
}

/// Recounts links and deletes rows of inodes that are gone, if another program added entries since
/// the last clean close.
fn recount_if_foreign(conn: &Connection) -> Result<()> {
    if !epoch::is_clean(conn)? {
        return Ok(());
    }
    let last = dentry::last_id(conn)?;
    if meta::get::<i64>(conn, meta::LAST_DENTRY)? != Some(last) {
        inode::recount(conn)?;
        inode::forget_gone(conn)?;
        meta::put(conn, meta::LAST_DENTRY, last)?;
    }
    Ok(())
}

/// Refuses a session without a root directory (specification 0.4, consistency rule 1).
fn require_root(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare("SELECT 1 FROM fs_inode WHERE ino = ?1")?;
    if statement.exists(params![1])? {
        return Ok(());
    }
    Err(StoreError::corrupt("there is no root directory (fs_inode 1)"))
}
