//! Files of replicas.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connect::{self, Role};
use super::error::OpenError;
use super::host::Host;
use super::lock::SessionLock;
use super::session::{OpenMode, Session};
use super::{config, create};
use crate::delta::sqlite::table::replica::{
    BatchMark, RowNotes, SessionTable, TableRows, get_mark, put_mark, session_tables,
};
use crate::delta::sqlite::table::{dentry, meta};
use crate::delta::{Result, StoreError};

/// Bytes of rows that are read at once.
const PAGE_BYTES: usize = 4 << 20;

/// What a replica has beside the session's rows.
#[derive(Debug, Clone, Copy)]
pub struct AboutReplica<'a> {
    /// The session's name in the other store.
    pub url: &'a str,
    /// The last batch that the rows are of.
    pub mark: BatchMark,
    /// The secret key of the file handles' MAC.
    pub handle_key: [u8; 16],
}

/// A replica that is being filled; without [`NewReplica::finish`] nothing is left of it.
pub struct NewReplica {
    conn: Option<Connection>,
    path: PathBuf,
    lock: Option<SessionLock>,
}

impl NewReplica {
    /// An empty one at `path`, in place of what is there.
    ///
    /// # Errors
    /// The file cannot be made, or another process has a session there open.
    pub fn create(path: &Path) -> std::result::Result<Self, OpenError> {
        let path = &create::absolute(path)?;
        let lock = Some(SessionLock::take(path, true)?);
        create::remove(path);
        let conn = create::empty(path)?;
        let new = Self { conn: Some(conn), path: path.to_owned(), lock };
        let begun = new.conn().and_then(|conn| Ok(conn.execute_batch("BEGIN")?));
        begun.map_err(|error| OpenError::store(path, error))?;
        Ok(new)
    }

    fn conn(&self) -> Result<&Connection> {
        self.conn.as_ref().ok_or_else(|| StoreError::io("the replica is finished"))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// A value has not its column's type, or the disk is full.
    pub fn insert(&self, rows: &TableRows) -> Result<()> {
        let conn = self.conn()?;
        SessionTable::make_place(conn, rows)?;
        SessionTable::insert(conn, rows)
    }

    /// Commits the replica, and opens it to be served.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(
        mut self,
        about: &AboutReplica<'_>,
        host: &Host,
    ) -> std::result::Result<Session, OpenError> {
        let filled = self.fill(about, host);
        filled.map_err(|error| OpenError::store(&self.path, error))?;
        let conn = self.conn.take();
        let closed = conn.map_or(Ok(()), create::finish);
        let opened = closed.map_err(|error| OpenError::store(&self.path, error));
        opened.and_then(|()| {
            Session::open_locked(&self.path, OpenMode::Serve, self.lock.take(), host)
        })
    }

    /// Commits a session of its own with these rows. It keeps its id and `handle_key`, the secret
    /// key of the file handles' MAC; as a copy, it gets new ones.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish_session(
        mut self,
        handle_key: [u8; 16],
        is_copy: bool,
        host: &Host,
    ) -> std::result::Result<(), OpenError> {
        let fill = || -> Result<()> {
            let conn = self.conn()?;
            match is_copy {
                true => config::identify(conn, host)?,
                false => meta::put(conn, meta::HANDLE_KEY, handle_key.as_slice())?,
            }
            self.complete(host)
        };
        fill().map_err(|error| OpenError::store(&self.path, error))?;
        let closed = self.conn.take().map_or(Ok(()), create::finish);
        closed.map_err(|error| OpenError::store(&self.path, error))?;
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(|error| OpenError::io(&self.path, error))
    }

    fn fill(&self, about: &AboutReplica<'_>, host: &Host) -> Result<()> {
        let conn = self.conn()?;
        meta::put(conn, meta::HANDLE_KEY, about.handle_key.as_slice())?;
        meta::put(conn, meta::REPLICA_OF, about.url)?;
        put_mark(conn, Some(about.mark))?;
        self.complete(host)
    }

    /// Adds what is about the file, and commits.
    fn complete(&self, host: &Host) -> Result<()> {
        let conn = self.conn()?;
        put_state(conn, host)?;
        meta::put(conn, meta::EPOCH, 1)?;
        Ok(conn.execute_batch("COMMIT")?)
    }
}

/// Records the state of a file with rows of another store.
pub(super) fn put_state(conn: &Connection, host: &Host) -> Result<()> {
    // Not clean: the last calls may have no answer, so that clients repeat them. Of this boot:
    // nothing is lost.
    meta::put(conn, meta::CLEAN, 0)?;
    meta::put(conn, meta::BOOT_ID, host.boot_id.as_deref().unwrap_or(""))?;
    meta::put(conn, meta::LAST_DENTRY, dentry::last_id(conn)?)
}

impl Drop for NewReplica {
    fn drop(&mut self) {
        if self.conn.take().is_some() {
            create::remove(&self.path);
        }
    }
}

impl Session {
    /// Marks the session as moved to another store, under this name: it is not served any more;
    /// `None` takes the mark away. Call before the writer is opened.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record_move(&mut self, to: Option<&str>) -> Result<()> {
        self.before_writer(|conn| match to {
            Some(to) => meta::put(conn, meta::MOVED_TO, to),
            None => meta::delete(conn, meta::MOVED_TO),
        })
    }

    /// Notes from now on which rows are changed, for another store. Call before the writer is
    /// opened.
    ///
    /// # Errors
    /// The session is not open to be served.
    pub fn note_rows(&mut self) -> Result<()> {
        let first = self.first.get_mut().as_mut();
        let conn = first.ok_or_else(|| StoreError::busy("the session's writer is open"))?;
        let notes = RowNotes::default();
        notes.watch(conn)?;
        self.row_notes = Some(notes);
        Ok(())
    }

    /// The last batch that a replica has; `None` if this is no replica, or one with rows of no
    /// batch. Call before the writer is opened.
    ///
    /// # Errors
    /// The file cannot be read, or is not open to be served.
    pub fn replica_mark(&self) -> Result<Option<BatchMark>> {
        let first = self.first.lock();
        let conn = first.as_ref().ok_or_else(|| StoreError::busy("the writer is open"))?;
        get_mark(conn)
    }

    /// Makes the session a replica that has all batches up to `mark`: another store has its rows.
    /// Call before the writer is opened.
    ///
    /// # Errors
    /// The session is not open to be served, or the disk is full.
    pub fn record_mark(&mut self, mark: BatchMark) -> Result<()> {
        self.before_writer(|conn| put_mark(conn, Some(mark)))
    }

    /// Calls `each` with all rows of the session, table by table, in pages; `with_outside` says
    /// whether those of the tables that no replica has are among them.
    ///
    /// # Errors
    /// Those of `each`; the file cannot be read, or a value has not its column's type.
    pub fn each_row(
        &self,
        with_outside: bool,
        each: &mut dyn FnMut(TableRows) -> Result<()>,
    ) -> Result<()> {
        let conn = connect::open(&self.path, Role::Reader)?;
        // One snapshot.
        conn.execute_batch("BEGIN")?;
        for table in session_tables().iter().filter(|it| with_outside || !it.is_outside) {
            let mut after = i64::MIN;
            loop {
                let rows = table.read_after(&conn, after, PAGE_BYTES)?;
                let Some(last) = rows.ids.last() else { break };
                after = *last;
                each(rows)?;
            }
        }
        Ok(())
    }
}
