//! Replicas that are brought up to date while nothing serves them.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use super::connect::{self, Role};
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
