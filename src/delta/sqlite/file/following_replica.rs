//! Replicas that are brought up to date while nothing serves them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connect::{self, Role, companion_path};
use super::create;
use super::error::OpenError;
use super::host::Host;
use super::lock::SessionLock;
use super::replica::put_state;
use crate::delta::Result;
use crate::delta::sqlite::table::replica::{
    BatchMark, SessionTable, TableRows, get_mark, put_mark,
};
use crate::delta::sqlite::table::tree_sum;

/// A replica that gets the rows of batches. No other process has it.
pub struct FollowingReplica {
    conn: Connection,
    host: Host,
    _lock: SessionLock,
}

/// The most files that are set aside for one name.
const MAX_ASIDE: usize = 100;

/// Gives the replica at `path` another name, which is returned: it has what no other has, and its
/// place is needed.
///
/// # Errors
/// Another process has it, or there are too many already.
pub fn set_aside(path: &Path) -> std::result::Result<PathBuf, OpenError> {
    let path = &create::absolute(path)?;
    let _lock = SessionLock::take(path, true)?;
    let failed = |error| OpenError::io(path, error);
    for number in 1..=MAX_ASIDE {
        let aside = companion_path(path, &format!(".diverged-{number}"));
        let new = |suffix| companion_path(&aside, suffix);
        if new("").symlink_metadata().is_ok() || new("-wal").symlink_metadata().is_ok() {
            continue;
        }
        // The WAL first: without it, the file would look whole.
        match std::fs::rename(companion_path(path, "-wal"), new("-wal")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        std::fs::rename(path, &aside).map_err(failed)?;
        return Ok(aside);
    }
    Err(failed(ErrorKind::AlreadyExists.into()))
}

impl FollowingReplica {
    /// The replica at `path`, with the last batch that it has; `None` if there is no file, or one
    /// that is no replica, is of another format or has rows of no batch.
    ///
    /// # Errors
    /// Another process has it, or it cannot be read.
    pub fn open(
        path: &Path,
        host: &Host,
    ) -> std::result::Result<Option<(Self, BatchMark)>, OpenError> {
        let path = &create::absolute(path)?;
        let lock = SessionLock::take(path, true)?;
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let open = || -> Result<(Connection, Option<BatchMark>)> {
            let conn = connect::open(path, Role::Writer)?;
            connect::use_wal(&conn)?;
            connect::set_full(&conn, false)?;
            let mark = get_mark(&conn)?;
            Ok((conn, mark))
        };
        let (conn, mark) = open().map_err(|error| OpenError::store(path, error))?;
        Ok(mark.map(|mark| (Self { conn, host: host.clone(), _lock: lock }, mark)))
    }

    /// Begins to change it; what was begun before and not committed is undone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self) -> Result<()> {
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK")?;
        }
        Ok(self.conn.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Deletes rows of a table.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn delete(&mut self, table: &SessionTable, ids: &BTreeSet<i64>) -> Result<()> {
        table.delete(&self.conn, ids)
    }

    /// Adds rows that are not there.
    ///
    /// # Errors
    /// They contradict those that are there, or the disk is full.
    pub fn insert(&mut self, rows: &TableRows) -> Result<()> {
        SessionTable::insert(&self.conn, rows)
    }

    /// Commits what was changed since [`Self::begin`]: all batches up to `mark`.
    ///
    /// # Errors
    /// The disk is full.
    pub fn commit(&mut self, mark: BatchMark) -> Result<()> {
        let conn = &self.conn;
        tree_sum::forget(conn)?;
        put_state(conn, &self.host)?;
        put_mark(conn, Some(mark))?;
        Ok(conn.execute_batch("COMMIT")?)
    }
}
