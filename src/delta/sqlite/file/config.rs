//! Configuration of a session: `fs_config`, `fs_overlay_config` and constants of `acetate_meta`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Limits, Result, StoreError};
use crate::pattern::PatternSet;

use super::host::Host;
use crate::delta::sqlite::table::log_keep::LogKeep;
use crate::delta::sqlite::table::value::{self, Bytes};
use crate::delta::sqlite::table::{dentry, hide, inode, inode_numbers::InodeNumbers, meta, quota};

/// The specification's default chunk size, in bytes.
pub const DEFAULT_CHUNK_BYTES: u64 = 4096;

/// Largest chunk size accepted from another implementation, in bytes: one chunk must fit in memory.
const MOST_CHUNK_BYTES: u64 = 64 << 20;

/// Configuration that is constant while a session is open.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Chunk size, in bytes.
    pub chunk_bytes: u64,
    /// The session's id, 32 hexadecimal digits.
    pub id: String,
    /// Key of the file handles' MAC.
    pub handle_key: [u8; 16],
    /// The base directory recorded in the file.
    pub base_path: Option<PathBuf>,
    /// The session's own limits.
    pub limits: Limits,
    /// How much of its audit log the session keeps.
    pub log_keep: LogKeep,
    /// Paths of the base that are never shown.
    pub hidden: Arc<PatternSet>,
    /// The session's name in another store, if it was moved there.
    pub moved_to: Option<String>,
    /// Of a replica: the session's name in the other store.
    pub replica_of: Option<String>,
}

impl SessionConfig {
    /// Reads the session's configuration. A missing id or key is taken from the host's seed and
    /// lasts as long as the process.
    pub(super) fn load(conn: &Connection, host: &Host) -> Result<Self> {
        let (id, key) = host.seed.split_at(16);
        let stored_key: Option<Vec<u8>> = meta::get(conn, meta::HANDLE_KEY)?;
        let handle_key = stored_key
            .as_deref()
            .unwrap_or(key)
            .try_into()
            .map_err(|_| StoreError::corrupt("acetate_meta.handle_key is not 16 bytes long"))?;
        Ok(Self {
            chunk_bytes: chunk_bytes(conn)?,
            id: meta::get(conn, meta::SESSION_ID)?.unwrap_or_else(|| hex(id)),
            handle_key,
            base_path: base_path(conn)?,
            limits: quota::limits(conn)?,
            // A session with a bound that is no number keeps everything.
            log_keep: LogKeep::load(conn).unwrap_or_default(),
            hidden: Arc::new(hide::patterns(conn)?),
            moved_to: meta::get(conn, meta::MOVED_TO)?,
            replica_of: meta::get(conn, meta::REPLICA_OF)?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn chunk_bytes(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare("SELECT value FROM fs_config WHERE key = 'chunk_size'")?;
    let stored = statement.query_row([], |row| value::int(row, 0)).optional()?;
    let Some(stored) = stored else { return Ok(DEFAULT_CHUNK_BYTES) };
    u64::try_from(stored)
        .ok()
        .filter(|bytes| (1..=MOST_CHUNK_BYTES).contains(bytes))
        .ok_or_else(|| StoreError::corrupt(format!("fs_config.chunk_size is {stored}")))
}

pub fn base_path(conn: &Connection) -> Result<Option<PathBuf>> {
    let mut statement =
        conn.prepare("SELECT value FROM fs_overlay_config WHERE key = 'base_path'")?;
    let found = statement.query_row([], |row| value::bytes(row, 0).map(<[u8]>::to_vec));
    let found = found.optional()?.filter(|bytes| !bytes.is_empty());
    Ok(found.map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes))))
}

/// Records the base directory, by which other implementations recognise an overlay. Clears the
/// subdirectory counts, because another base has other subdirectories.
pub(super) fn put_base_path(conn: &Connection, base: &Path) -> Result<()> {
    conn.execute(
        "INSERT INTO fs_overlay_config (key, value) VALUES ('base_path', ?1)
         ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        params![Bytes(base.as_os_str().as_bytes())],
    )?;
    inode::forget_subdirs(conn)
}

/// Initializes `acetate_meta` in a file that has none (invariant M1).
pub fn found(conn: &Connection, host: &Host) -> Result<()> {
    meta::put(conn, meta::FORMAT, meta::FIRST_FORMAT)?;
    identify(conn, host)?;
    meta::put(conn, meta::EPOCH, 1)?;
    meta::put(conn, meta::CLEAN, 1)?;
    meta::put(conn, meta::NEXT_INO, InodeNumbers::load(conn)?.last().cast_signed())?;
    meta::put(conn, meta::LAST_DENTRY, dentry::last_id(conn)?)
}

/// Writes a new unique session id and handle key.
pub fn identify(conn: &Connection, host: &Host) -> Result<()> {
    let (id, key) = host.seed.split_at(16);
    meta::put(conn, meta::SESSION_ID, hex(id))?;
    meta::put(conn, meta::HANDLE_KEY, key)
}
