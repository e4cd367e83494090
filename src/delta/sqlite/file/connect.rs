//! Opening SQLite connections, and how they are set up.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::table::value;
use crate::wal_shim;

/// How long a connection waits for another program's write lock.
pub const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Page cache of the writing connection, in KiB.
const WRITER_CACHE_KIB: u32 = 12 << 10;

/// Page cache of each reading connection, in KiB.
const READER_CACHE_KIB: u32 = 4 << 10;

/// Prepared statements that a connection keeps: more than there are in the row modules.
const STATEMENTS: usize = 96;

/// Length of the log at which a program beside the server copies it, in bytes: longer than a
/// server lets it get, so that this happens only where none does.
const BESIDE_LOG_BYTES: u64 = 64 << 20;

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Change everything.
    Writer,
    /// Read, in a session that is being written, or that is at rest. The connection could write:
    /// whichever closes last clears the log away, which a read-only one cannot.
    Reader,
    /// Read a file that must not change.
    ReadOnly,
    /// Read a file that must not change and whose log is absent or of no interest, without
    /// locks, and without the log and shared-memory files that reading needs otherwise.
    Immutable,
}

/// Opens a connection to an existing file, set up but for what changes the file.
pub fn open(path: &Path, role: Role) -> Result<Connection> {
    let access = match role {
        Role::Writer | Role::Reader => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Role::ReadOnly | Role::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = if role == Role::Immutable {
        Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    } else if let Some(layer) = wal_shim::name().filter(|_| role != Role::ReadOnly) {
        Connection::open_with_flags_and_vfs(path, flags, layer)?
    } else {
        Connection::open_with_flags(path, flags)?
    };
    conn.busy_timeout(BUSY_WAIT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // What a session file says must not run code: it may come from anywhere.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Else SQLite looks at the values that are bound, and plans every cached join anew each time
    // it runs: a lookup took 30 µs and takes 3.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let cache_kib = if role == Role::Writer { WRITER_CACHE_KIB } else { READER_CACHE_KIB };
    conn.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    if role == Role::Reader {
        conn.pragma_update(None, "query_only", true)?;
    }
    Ok(conn)
}

thread_local! {
    /// Whether SQLite would have waited for a lock on this thread since it was asked last.
    static WOULD_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Lets a connection fail where it would wait for a lock; [`would_have_waited`] tells of it.
pub fn never_wait(conn: &mut Connection) -> Result<()> {
    conn.busy_handler(Some(|_| {
        WOULD_WAIT.set(true);
        false
    }))?;
    Ok(())
}

/// Whether a connection that never waits met a lock on this thread since this was called last.
pub fn would_have_waited() -> bool {
    WOULD_WAIT.take()
}

/// Sets a writing connection up to write: in WAL mode, and with the log in our own hands.
pub fn prepare_to_write(conn: &Connection) -> Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(StoreError::Io(format!("no write-ahead log here (journal mode {mode})")));
    }
    // macOS: fsync alone leaves data in the drive's cache; ignored elsewhere.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    conn.pragma_update(None, "secure_delete", false)?;
    // SQLite's own checkpoints hide their errors, and a failed sync must not be missed (see
    // writer.rs).
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    set_full(conn, true)
}

/// Leaves the log as it is if `conn` is the last connection to close. Else SQLite copies it into
/// the database then, and removes it where no sync fails: one may have failed before, and lost
/// what was copied earlier.
pub fn keep_log(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// Sets a connection up to write a few rows beside whoever serves the session: each commit synced,
/// and the log left to the server, as long as it keeps the log short.
pub fn prepare_beside(conn: &Connection) -> Result<()> {
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    let pages = BESIDE_LOG_BYTES / page_bytes(conn)?.max(1);
    conn.pragma_update(None, "wal_autocheckpoint", pages.cast_signed())?;
    set_full(conn, true)
}

/// Chooses whether a commit syncs the log (FULL) or not (NORMAL); outside a transaction.
pub fn set_full(conn: &Connection, full: bool) -> Result<()> {
    let level = if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
    Ok(conn.execute_batch(level)?)
}

/// Page size of the file, in bytes.
pub fn page_bytes(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare_cached("PRAGMA page_size")?;
    Ok(statement.query_row([], |row| value::unsigned(row, 0))?)
}

/// `path` with `suffix` at its end: how SQLite names the files beside a database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// `path` as a URI for SQLite, which reads the percent-encoding back.
fn immutable_uri(path: &Path) -> String {
    use std::fmt::Write;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri + "?immutable=1"
}
