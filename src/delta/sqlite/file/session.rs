//! [`Session`]: an open session file, which hands out connections.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::delta::{
    BackgroundThreads, Checkpoint, CheckpointId, Ino, Result, StoreError, StoreErrorKind,
    UnacknowledgedOp,
};
use crate::pattern::PatternSet;

use super::config::{self, SessionConfig};
use super::connect::{self, Role, companion_path};
use super::create::NEW_SUFFIX;
use super::disk::byte_len;
use super::lock::{self, SessionLock};
use super::memory::MemoryBound;
use super::rewrite;
use super::wal_progress::WalProgress;
use crate::delta::sqlite::table::replica::{self, RowNotes};
use crate::delta::sqlite::table::schema;
use crate::delta::sqlite::table::{hide, old_rows};

/// The purpose for which a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To serve and change it. No other server may have it open.
    Serve,
    /// To serve it unchanged. Other read-only servers may have it open too.
    ReadOnly,
    /// To inspect it, even while a server has it open. The file is not changed.
    Inspect,
}

/// Suffix of the control socket's name.
pub const CONTROL_SUFFIX: &str = "-control";

/// Suffixes of the log of a background server, and of its previous log.
pub const LOG_SUFFIXES: [&str; 2] = [".log", ".log.old"];

/// Permission bits with which users other than the owner can read or write a file.
const SHARED_BITS: u32 = 0o066;

/// A session's file that users other than its owner may read or write.
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
    pub(in crate::delta::sqlite) unacknowledged_ops: Vec<UnacknowledgedOp>,
    /// The checkpoint whose tree readers see, and its `next_ino`; `None` for the present tree.
    pub(in crate::delta::sqlite) at: Option<(CheckpointId, Ino)>,
    /// Threads for work beside the writer.
    pub(in crate::delta::sqlite) background: Arc<dyn BackgroundThreads>,
    /// The size bound, if the session is in memory.
    pub(in crate::delta::sqlite) memory: Option<MemoryBound>,
    /// The connection that opened the session, until the writer takes it. While it is open, a
    /// closing reader is never the last connection, which would remove the WAL.
    pub(in crate::delta::sqlite) first: Mutex<Option<Connection>>,
    pub(in crate::delta::sqlite) writing: Arc<AtomicBool>,
    pub(in crate::delta::sqlite) lock: Option<Arc<SessionLock>>,
    pub(in crate::delta::sqlite) wal: Arc<WalProgress>,
    /// Of a replica: the rows that were changed since the other store had them.
    pub(in crate::delta::sqlite) row_notes: Option<RowNotes>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the handle key: it is a secret.
        f.debug_struct("Session").field("path", &self.path).field("mode", &self.mode).finish()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without a writer, this was the only connection that may remove the WAL.
        if let (Some(_), Some(lock)) = (self.first.get_mut(), &self.lock) {
            lock.release_files();
        }
    }
}

impl Session {
    /// The session file's absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The session file and all files that may lie beside it. An export must not show them.
    pub fn files(&self) -> Vec<PathBuf> {
        session_files(&self.path)
    }

    /// The directory beside the session for what the last `acetate apply` replaced and removed. It
    /// need not exist.
    pub fn undo_dir(&self) -> PathBuf {
        companion_path(&self.path, UNDO_SUFFIX)
    }

    /// The session's files that users other than their owner may read or write.
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

    /// The secret key of the file handles' MAC.
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

    /// The name of the session in another store, if it was moved there.
    pub fn moved_to(&self) -> Option<&str> {
        self.config.moved_to.as_deref()
    }

    /// Of a replica: the name of the session in the other store.
    pub fn replica_of(&self) -> Option<&str> {
        self.config.replica_of.as_deref()
    }

    /// Chunk size, in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.config.chunk_bytes
    }

    /// The mode that the session was opened in.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Lets connections that are opened from now on read the tree as it was at a checkpoint.
    pub fn show_at(&mut self, at: &Checkpoint) {
        self.at = Some((at.id, at.next_ino));
    }

    /// Begins the one snapshot of a connection that shows the tree at a checkpoint.
    pub(in crate::delta::sqlite) fn go_back(&self, conn: &Connection) -> Result<()> {
        let Some(at) = self.at else { return Ok(()) };
        // Temporary tables count as a change in SQLite, though not of the file.
        conn.execute_batch("PRAGMA temp_store = FILE; PRAGMA query_only = 0; BEGIN")?;
        old_rows::show_at(conn, at)
    }

    /// Declares that the session is in memory: its files together take at most `bound`, and it
    /// keeps no audit log. Call before the writer is opened.
    pub fn keep_in_memory(&mut self, bound: MemoryBound) {
        self.memory = Some(bound);
    }

    /// Runs work beside the writer on these threads, instead of on new ones. Call before the writer
    /// is opened.
    pub fn run_background_on(&mut self, threads: Arc<dyn BackgroundThreads>) {
        self.background = threads;
    }

    /// Records the base directory in the session. Call before the writer is opened.
    ///
    /// # Errors
    /// The session is read-only, or its writer is already open.
    pub fn record_base(&mut self, base: &Path) -> Result<()> {
        self.before_writer(|conn| config::put_base_path(conn, base))?;
        self.config.base_path = Some(base.to_owned());
        Ok(())
    }

    /// Replaces the patterns of base paths that are never shown. Call before the writer is opened.
    ///
    /// # Errors
    /// As [`Session::record_base`], or there are too many patterns.
    pub fn record_hidden(&mut self, hidden: PatternSet) -> Result<()> {
        self.before_writer(|conn| hide::put(conn, &hidden))?;
        self.config.hidden = Arc::new(hidden);
        Ok(())
    }

    /// Runs `change` in a transaction on the connection that the writer will take.
    pub(in crate::delta::sqlite) fn before_writer(
        &mut self,
        change: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<()> {
        if self.mode != OpenMode::Serve {
            return Err(StoreError::read_only("opened to be read"));
        }
        let first = self.first.get_mut();
        let conn =
            first.as_ref().ok_or_else(|| StoreError::busy("the session's writer is open"))?;
        let transaction = conn.unchecked_transaction()?;
        // Another store has the change only after the writer is opened, or never.
        replica::put_mark(&transaction, None)?;
        change(&transaction)?;
        transaction.commit()?;
        Ok(())
    }
}

/// Opens a connection that does not change the file; temporary tables replace missing ones.
pub fn open_read_only(path: &Path) -> Result<Connection> {
    // A connection that could write removes the WAL and shared-memory files that reading created,
    // when it closes. A WAL that a killed server left must stay, so then open read-only.
    let at_rest = byte_len(&companion_path(path, "-wal")) == 0;
    let role = if at_rest { Role::Reader } else { Role::ReadOnly };
    match connect::open(path, role).and_then(with_stand_ins) {
        // The shared-memory file cannot be created, as on a read-only medium. Without a WAL no
        // program can be writing, so the file can be read as immutable.
        Err(error)
            if matches!(error.kind, StoreErrorKind::Io | StoreErrorKind::ReadOnly)
                && byte_len(&companion_path(path, "-wal")) == 0 =>
        {
            connect::open(path, Role::Immutable).and_then(with_stand_ins)
        }
        opened => opened,
    }
}

fn with_stand_ins(conn: Connection) -> Result<Connection> {
    // Creating temporary tables counts as a change in SQLite, though not of the file.
    let query_only: bool = conn.query_row("PRAGMA query_only", [], |row| row.get(0))?;
    conn.pragma_update(None, "query_only", false)?;
    schema::create_missing_as_temp(&conn)?;
    conn.pragma_update(None, "query_only", query_only)?;
    Ok(conn)
}

/// Suffix of [`Session::undo_dir`].
const UNDO_SUFFIX: &str = "-undo";

/// The session file and all files that may lie beside it, whether they exist or not.
pub fn session_files(session: &Path) -> Vec<PathBuf> {
    let sqlites = ["", "-wal", "-shm", "-journal"];
    let new = sqlites.map(|suffix| format!("{NEW_SUFFIX}{suffix}"));
    let new = new.iter().map(|suffix| companion_path(session, suffix));
    let ours = [lock::SUFFIX, rewrite::SUFFIX, rewrite::JOURNAL_SUFFIX, CONTROL_SUFFIX];
    let suffixes = sqlites.iter().chain(&ours).chain(&[UNDO_SUFFIX]).chain(&LOG_SUFFIXES);
    suffixes.map(|suffix| companion_path(session, suffix)).chain(new).collect()
}
