//! Access to `kv_store` and `tool_calls`, the agent's own tables, from programs beside the server.
//!
//! Such a program is another writer under SQLite's own locks. The server never reads or writes
//! these tables, nor `acetate_tool_call`, so no lock on the session is needed. The program must not
//! disturb the server: a transaction holds one row's change (a tool call with its bounds), no other
//! table is written, the journal mode stays, and checkpoints are left to the server (see `wal`). If
//! no server has the session, SQLite checkpoints when the connection closes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::probe;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::{meta, schema};

/// The access mode of a connection to the agent's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentAccess {
    /// Read only: the file is not changed.
    Read,
    /// Read and write.
    Write,
}

/// An agent's table, with the columns that it must have.
pub(super) struct AgentTable {
    pub name: &'static str,
    pub columns: &'static [&'static str],
}

/// `kv_store` and `tool_calls` of a session, which a server may have open.
#[derive(Debug)]
pub struct AgentTables {
    path: PathBuf,
    pub(super) conn: Connection,
    /// Tables that were found with all columns: the check costs more than reading a row.
    found: RefCell<BTreeSet<&'static str>>,
}

impl AgentTables {
    /// Opens the agent's tables of the session file `path`.
    ///
    /// # Errors
    /// The file is no session of version 0.4, or, for [`AgentAccess::Write`], it cannot be written.
    pub fn open(path: &Path, access: AgentAccess) -> std::result::Result<Self, OpenError> {
        let path = Session::existing(path)?;
        probe::check(&path)?;
        let conn = match access {
            AgentAccess::Read => open_read_only(&path),
            AgentAccess::Write => open_to_write(&path),
        };
        let conn = conn.map_err(|error| OpenError::store(&path, error))?;
        Ok(Self { path, conn, found: RefCell::default() })
    }

    /// The session file's absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The URL of the session in a database that the file is a replica of: its tables are there.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn replica_of(&self) -> Result<Option<String>> {
        // Other implementations have no such table.
        match schema::has_table(&self.conn, "acetate_meta")? {
            true => meta::get(&self.conn, meta::REPLICA_OF),
            false => Ok(None),
        }
    }

    /// Whether the table exists.
    ///
    /// # Errors
    /// The table lacks a column.
    pub(super) fn has(&self, table: &AgentTable) -> Result<bool> {
        if self.found.borrow().contains(table.name) {
            return Ok(true);
        }
        if !schema::has_table(&self.conn, table.name)? {
            return Ok(false);
        }
        for column in table.columns {
            if !schema::has_column(&self.conn, table.name, column)? {
                let text = format!("its table {} has no column {column}", table.name);
                return Err(StoreError::corrupt(text));
            }
        }
        self.found.borrow_mut().insert(table.name);
        Ok(true)
    }

    /// Begins a transaction that changes rows of a table; creates the table if the file lacks it.
    ///
    /// # Errors
    /// The table lacks a column, or the session cannot be written now.
    pub(super) fn change(&self, table: &AgentTable) -> Result<Transaction<'_>> {
        // Takes the write lock at once: upgrading a read transaction later may fail for good.
        let transaction = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)?;
        if !self.has(table)? {
            schema::create_of_spec(&transaction, table.name)?;
        }
        Ok(transaction)
    }
}

fn open_to_write(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    if conn.is_readonly("main")? {
        return Err(StoreError::read_only("the file may not be written"));
    }
    connect::prepare_beside(&conn)?;
    Ok(conn)
}
