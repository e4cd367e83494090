//! Creates a session.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use crate::delta::{Ino, InodeRow, Result};
use crate::pattern::PatternSet;
use crate::vfs::{Device, FileKind, Time};

use super::config;
use super::connect::{self, Role, companion_path};
use super::disk::{byte_len, rename_new};
use super::error::OpenError;
use super::host::Host;
use super::lock::SessionLock;
use super::session::{OpenMode, Session};
use crate::delta::sqlite::table::schema::SPEC_VERSION;
use crate::delta::sqlite::table::{hide, inode, inode_numbers::InodeNumbers, meta, schema};

/// Page size of a new session, in bytes. Small pages keep small changes and small files cheap
/// (decision 0012).
const PAGE_BYTES: u32 = 4096;

/// `application_id` of a new session: "ACET".
pub const APPLICATION_ID: i32 = 0x4143_4554;

/// Permission bits of a new session's file; SQLite gives its WAL the same ones. The files hold the
/// key of all file handles, contents that not every user may read, and the audit log.
const FILE_MODE: u32 = 0o600;

/// Suffix of a session that is being created.
pub const NEW_SUFFIX: &str = "-new";

/// A chunk size for a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize(u64);

impl ChunkSize {
    /// Minimum, in bytes.
    pub const LEAST: u64 = 512;
    /// Maximum, in bytes.
    pub const MOST: u64 = 1 << 20;

    /// Checks a number of bytes: a power of two from [`Self::LEAST`] to [`Self::MOST`].
    ///
    /// # Errors
    /// [`OpenError::ChunkSize`].
    pub fn new(bytes: u64) -> std::result::Result<Self, OpenError> {
        if bytes.is_power_of_two() && (Self::LEAST..=Self::MOST).contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(OpenError::ChunkSize { bytes, least: Self::LEAST, most: Self::MOST })
    }

    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for ChunkSize {
    /// 65536 bytes.
    fn default() -> Self {
        Self(65536)
    }
}

/// The root directory's attributes; for a session with a base, those of the base's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootAttr {
    /// Permission bits (12 bits).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

impl RootAttr {
    /// The specification's default root directory, created at `now`.
    pub fn new(now: Time) -> Self {
        Self { mode: 0o755, uid: 0, gid: 0, atime: now, mtime: now, ctime: now }
    }
}

/// Options for creating a session.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Chunk size.
    pub chunk_size: ChunkSize,
    /// The absolute base directory to record; `None` for a session without a base.
    pub base_path: Option<PathBuf>,
    /// The root directory's attributes; `None` for the specification's defaults.
    pub root: Option<RootAttr>,
    /// Paths of the base that are never shown.
    pub hidden: PatternSet,
}

impl Session {
    /// Creates the session file `path` and opens it in [`OpenMode::Serve`].
    ///
    /// The file gets its name once it is whole: a process that dies here leaves nothing that the
    /// next creation does not replace.
    ///
    /// # Errors
    /// See [`OpenError`]. In particular, fails if the file exists.
    pub fn create(
        path: &Path,
        options: &CreateOptions,
        host: &Host,
    ) -> std::result::Result<Self, OpenError> {
        let path = &absolute(path)?;
        if path.symlink_metadata().is_ok() {
            return Err(OpenError::Exists { path: path.to_owned() });
        }
        // Held until the end: no server may open the file while it can still be removed, and the
        // new file is of no other process.
        let lock = SessionLock::take(path, true)?;
        let wal = companion_path(path, "-wal");
        if byte_len(&wal) > 0 {
            // SQLite would delete it, and it may be all that is left of a session.
            return Err(OpenError::LeftoverWal { wal });
        }
        let new = companion_path(path, NEW_SUFFIX);
        remove(&new);
        let made = fill(&new, options, host).and_then(|()| name_new(&new, path));
        if let Err(error) = made {
            remove(&new);
            return Err(error);
        }
        // From here on the file is ours; any failure removes it.
        let created = Self::open_locked(path, OpenMode::Serve, Some(lock), host);
        if created.is_err() {
            remove(path);
        }
        created
    }
}

/// Removes a database and the files that SQLite keeps beside it.
pub(in crate::delta::sqlite) fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(companion_path(path, suffix));
    }
}

/// Gives the whole session `new` its name, durably; no file is overwritten.
///
/// # Errors
/// There is a file of this name, or the directory cannot be written.
pub fn name_new(new: &Path, path: &Path) -> std::result::Result<(), OpenError> {
    match rename_new(new, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(OpenError::Exists { path: path.to_owned() });
        }
        renamed => renamed.map_err(|error| OpenError::io(path, error))?,
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|error| OpenError::io(parent, error))
}

/// The absolute path of a file that may not exist, in a directory that must.
pub fn absolute(path: &Path) -> std::result::Result<PathBuf, OpenError> {
    let Some(name) = path.file_name() else {
        return Err(OpenError::NotFile { path: path.to_owned() });
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|error| OpenError::io(parent, error))?;
    Ok(parent.join(name))
}

/// Makes the file `new`, which does not exist, a session; its content is synced, by one fsync.
fn fill(new: &Path, options: &CreateOptions, host: &Host) -> std::result::Result<(), OpenError> {
    // Open until the end: it gets the error of each page that SQLite writes and the disk loses.
    let file = make_file(new)?;
    write_schema(new, options, host).map_err(|error| OpenError::store(new, error))?;
    file.sync_all().map_err(|error| OpenError::io(new, error))
}

/// Makes the file `path`, which does not exist, one with the tables of a session and no row; it is
/// not synced, and its connection never syncs.
pub(in crate::delta::sqlite) fn empty(path: &Path) -> std::result::Result<Connection, OpenError> {
    make_file(path)?;
    open_empty(path, |_| Ok(())).map_err(|error| OpenError::store(path, error))
}

fn make_file(path: &Path) -> std::result::Result<File, OpenError> {
    let mut file = OpenOptions::new();
    file.write(true).create_new(true).mode(FILE_MODE);
    file.open(path).map_err(|error| OpenError::io(path, error))
}

/// Writes the session without a sync, and closes it: a creation that fails begins from nothing.
fn write_schema(path: &Path, options: &CreateOptions, host: &Host) -> Result<()> {
    let conn = open_empty(path, |conn| fill_tables(conn, options, host))?;
    finish(conn)
}

/// Creates the tables, and fills them in the same transaction.
fn open_empty(path: &Path, fill: impl FnOnce(&Connection) -> Result<()>) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update(None, "encoding", "UTF-8")?;
    conn.pragma_update(None, "auto_vacuum", 0)?;
    connect::never_sync(&conn)?;
    let transaction =
        rusqlite::Transaction::new_unchecked(&conn, rusqlite::TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    schema::complete(&transaction)?;
    fill(&transaction)?;
    transaction.commit()?;
    Ok(conn)
}

/// Closes the connection of a file that is whole.
pub(in crate::delta::sqlite) fn finish(conn: Connection) -> Result<()> {
    connect::use_wal(&conn)?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn fill_tables(conn: &Connection, options: &CreateOptions, host: &Host) -> Result<()> {
    conn.execute(
        "INSERT INTO fs_config (key, value) VALUES ('chunk_size', ?1), ('schema_version', ?2)",
        params![options.chunk_size.bytes().to_string(), SPEC_VERSION],
    )?;
    let root = options.root.clone().unwrap_or_else(|| RootAttr::new(host.now));
    inode::put(conn, &root_row(&root))?;
    if let Some(base) = &options.base_path {
        config::put_base_path(conn, base)?;
    }
    config::found(conn, host)?;
    if !options.hidden.is_empty() {
        hide::put(conn, &options.hidden)?;
    }
    meta::put(conn, meta::NEXT_INO, InodeNumbers::first().cast_signed())
}

/// The root's row (specification 0.4, "Initialization").
fn root_row(root: &RootAttr) -> InodeRow {
    InodeRow {
        ino: Ino::ROOT,
        kind: FileKind::Directory,
        mode: root.mode & 0o7777,
        nlink: 1,
        uid: root.uid,
        gid: root.gid,
        size: 0,
        rdev: Device::default(),
        atime: root.atime,
        mtime: root.mtime,
        ctime: root.ctime,
        subdirs: Some(0),
        holes: 0,
        create_verifier: None,
        copy_up: None,
        origin: None,
    }
}
