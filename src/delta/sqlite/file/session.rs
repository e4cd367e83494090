//! [`Session`]: an open session file, which hands out connections.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::delta::{LateChange, Result, StoreError};
use crate::vfs::PatternSet;

use super::config::{self, SessionConfig};
use super::connect::{self, Role, beside};
use super::disk::byte_len;
use super::lock::{self, SessionLock};
use super::memory::MemoryBound;
use super::rewrite;
use crate::delta::sqlite::table::hide;
use crate::delta::sqlite::table::schema;

/// What a session is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To serve and change it: no other server may have it.
    Serve,
    /// To serve it as it is: the file is not changed, and only such servers may have it too.
    ReadOnly,
    /// To look into it, whoever else has it: the file is not changed.
    Inspect,
}

/// Ends the name of the socket beside a served session.
pub const CONTROL_SUFFIX: &str = "-control";

/// End the names of what a server in the background logs, and of the log before that.
pub const LOG_SUFFIXES: [&str; 2] = [".log", ".log.old"];

/// Permission bits by which others than its owner read or write a file.
const SHARED_BITS: u32 = 0o066;

/// A file of a session that others than its owner may read or write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

/// An open session file.
pub struct Session {
    pub(in crate::delta::sqlite) path: PathBuf,
    pub(in crate::delta::sqlite) mode: OpenMode,
    pub(in crate::delta::sqlite) config: SessionConfig,
    pub(in crate::delta::sqlite) epoch: Arc<AtomicU64>,
    pub(in crate::delta::sqlite) boot_id: Option<String>,
    /// See [`op::late_op`](crate::delta::sqlite::table::op::late_op).
    pub(in crate::delta::sqlite) late_op: Option<i64>,
    pub(in crate::delta::sqlite) late_changes: Vec<LateChange>,
    /// Where it is in memory: how much of that it may take.
    pub(in crate::delta::sqlite) memory: Option<MemoryBound>,
    /// The connection that opened the session, until the writer takes it: while one is open, no
    /// reader that comes and goes clears the log away.
    pub(in crate::delta::sqlite) first: Mutex<Option<Connection>>,
    pub(in crate::delta::sqlite) writing: Arc<AtomicBool>,
    pub(in crate::delta::sqlite) lock: Option<Arc<SessionLock>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the handle key: it is a secret.
        f.debug_struct("Session").field("path", &self.path).field("mode", &self.mode).finish()
    }
}

impl Session {
    /// The session file's absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The session file and all that may lie beside it: what an export must not show.
    pub fn files(&self) -> Vec<PathBuf> {
        session_files(&self.path)
    }

    /// The directory beside the session for what the last `acetate apply` replaced and removed,
    /// whether it is there or not.
    pub fn undo_dir(&self) -> PathBuf {
        beside(&self.path, UNDO_SUFFIX)
    }

    /// The session's files that others than their owner may read or write.
    pub fn exposed_files(&self) -> Vec<ExposedFile> {
        let mode = |path: &Path| path.symlink_metadata().map_or(0, |meta| meta.mode() & 0o7777);
        let files = self.files().into_iter();
        files
            .map(|path| ExposedFile { mode: mode(&path), path })
            .filter(|file| file.mode & SHARED_BITS != 0)
            .collect()
    }

    /// The session's id, 32 hexadecimal digits (invariant M1).
    pub fn id(&self) -> &str {
        &self.config.id
    }

    /// The secret that file handles are signed with.
    pub fn handle_key(&self) -> [u8; 16] {
        self.config.handle_key
    }

    /// The base directory recorded in the session (`fs_overlay_config.base_path`).
    pub fn base_path(&self) -> Option<&Path> {
        self.config.base_path.as_deref()
    }

    /// Paths of the base that the session never shows (`acetate_meta.hide`).
    pub fn hidden(&self) -> &Arc<PatternSet> {
        &self.config.hidden
    }

    /// Chunk size, in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.config.chunk_bytes
    }

    /// What the session was opened for.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Says that the session is in memory, where its files take no more than `bound` together,
    /// and where it has no audit log; before the writer is opened.
    pub fn keep_in_memory(&mut self, bound: MemoryBound) {
        self.memory = Some(bound);
    }

    /// Records the base directory in the session; before the writer is opened.
    ///
    /// # Errors
    /// The session is read-only, or its writer is open already.
    pub fn record_base(&mut self, base: &Path) -> Result<()> {
        self.before_writer(|conn| config::put_base_path(conn, base))?;
        self.config.base_path = Some(base.to_owned());
        Ok(())
    }

    /// Replaces the patterns of paths of the base that are never shown; before the writer is
    /// opened.
    ///
    /// # Errors
    /// As [`Session::record_base`]; or there are too many.
    pub fn record_hidden(&mut self, hidden: PatternSet) -> Result<()> {
        self.before_writer(|conn| hide::put(conn, &hidden))?;
        self.config.hidden = Arc::new(hidden);
        Ok(())
    }

    /// Runs `change` in a transaction of the connection that the writer will have.
    pub(in crate::delta::sqlite) fn before_writer(
        &mut self,
        change: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<()> {
        if self.mode != OpenMode::Serve {
            return Err(StoreError::ReadOnly("opened to be read".to_owned()));
        }
        let first = self.first.get_mut();
        let conn = first
            .as_ref()
            .ok_or_else(|| StoreError::Busy("the session's writer is open".to_owned()))?;
        let transaction = conn.unchecked_transaction()?;
        change(&transaction)?;
        transaction.commit()?;
        Ok(())
    }
}

/// Opens a connection that changes nothing in the file, with stand-ins for what it lacks.
pub fn open_read_only(path: &Path) -> Result<Connection> {
    // One that could write takes the log and the shared memory away that reading makes, where
    // there were none; a log that a killed server left stays as it is.
    let at_rest = byte_len(&beside(path, "-wal")) == 0;
    let role = if at_rest { Role::Reader } else { Role::ReadOnly };
    match connect::open(path, role).and_then(with_stand_ins) {
        // No place for the shared-memory file, as on a read-only medium; where there is no log
        // either, nobody can be writing.
        Err(StoreError::Io(_) | StoreError::ReadOnly(_))
            if byte_len(&beside(path, "-wal")) == 0 =>
        {
            connect::open(path, Role::Immutable).and_then(with_stand_ins)
        }
        opened => opened,
    }
}

fn with_stand_ins(conn: Connection) -> Result<Connection> {
    // Temporary tables count as changes, though not of the file.
    let query_only: bool = conn.query_row("PRAGMA query_only", [], |row| row.get(0))?;
    conn.pragma_update(None, "query_only", false)?;
    schema::stand_in(&conn)?;
    conn.pragma_update(None, "query_only", query_only)?;
    Ok(conn)
}

/// What the name of a session's [`Session::undo_dir`] ends with.
const UNDO_SUFFIX: &str = "-undo";

/// The session file at a path and all that may lie beside it, whether they are there or not.
pub fn session_files(session: &Path) -> Vec<PathBuf> {
    let sqlites = ["", "-wal", "-shm", "-journal"];
    let ours = [lock::SUFFIX, rewrite::SUFFIX, rewrite::JOURNAL_SUFFIX, CONTROL_SUFFIX];
    let suffixes = sqlites.iter().chain(&ours).chain(&[UNDO_SUFFIX]).chain(&LOG_SUFFIXES);
    suffixes.map(|suffix| beside(session, suffix)).collect()
}
