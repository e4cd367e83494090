//! Opens and configures SQLite connections.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::table::{checkpoint, incomplete, old_rows, value};
use crate::wal_shim;

/// How long a connection waits for another program's write lock.
pub const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Page cache of the writer's connection, in KiB.
const WRITER_CACHE_KIB: u32 = 12 << 10;

/// Page cache of each reader's connection, in KiB.
const READER_CACHE_KIB: u32 = 4 << 10;

/// Prepared statements cached per connection: more than the row modules have.
const STATEMENTS: usize = 96;

/// WAL length at which a program beside the server checkpoints it, in bytes. A server keeps its
/// WAL shorter, so this happens only where no server runs.
const BESIDE_WAL_BYTES: u64 = 64 << 20;

/// What a connection is allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Read and write.
    Writer,
    /// Read a session that is being written, or one at rest. The file is opened read-write, because
    /// the last connection to close removes the WAL, and a read-only one cannot.
    Reader,
    /// Read a file that must not change.
    ReadOnly,
    /// Read a file that must not change and has no WAL, or a WAL that does not matter. Uses no
    /// locks, WAL or shared-memory file.
    Immutable,
}

/// Opens a connection to an existing file. Sets only options that do not change the file.
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
    // A session file may come from an untrusted source: its schema must not run code.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // The query planner otherwise inspects bound values and replans a cached join at each run: 30
    // µs for a lookup instead of 3 µs.
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
    /// Whether SQLite would have waited for a lock on this thread since [`would_have_waited`] was
    /// last called.
    static WOULD_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Makes a connection fail instead of waiting for a lock; [`would_have_waited`] then returns true.
pub fn never_wait(conn: &mut Connection) -> Result<()> {
    conn.busy_handler(Some(|_| {
        WOULD_WAIT.set(true);
        false
    }))?;
    Ok(())
}

/// Whether a connection of [`never_wait`] met a lock on this thread since the last call.
pub fn would_have_waited() -> bool {
    WOULD_WAIT.take()
}

/// Configures a connection for writing: WAL mode, with WAL checkpoints under our control.
pub fn prepare_to_write(conn: &Connection) -> Result<()> {
    use_wal(conn)?;
    // macOS: fsync alone leaves data in the drive's cache. Ignored elsewhere.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    conn.pragma_update(None, "secure_delete", false)?;
    // SQLite's automatic checkpoints hide their errors, and a failed fsync must not be missed (see
    // writer.rs).
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    if checkpoint::any(conn)? {
        incomplete::add_column(conn)?;
        old_rows::watch(conn)?;
    }
    set_full(conn, true)
}

/// Sets WAL mode, which the file keeps.
pub fn use_wal(conn: &Connection) -> Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(StoreError::io(format!("no write-ahead log here (journal mode {mode})")))
}

/// Configures a connection for writing a new file that is of no use until it is complete: without
/// a sync, and without a journal on disk.
pub fn never_sync(conn: &Connection) -> Result<()> {
    conn.query_row("PRAGMA journal_mode = MEMORY", [], |_| Ok(()))?;
    Ok(conn.execute_batch("PRAGMA synchronous = OFF")?)
}

/// Leaves the WAL as it is when `conn` is the last connection to close. SQLite would otherwise
/// checkpoint and delete it if no sync fails then. An earlier sync may have failed and lost pages
/// that were copied before.
pub fn no_checkpoint_on_close(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// Configures a connection for writing a few rows while a server may have the session. Each commit
/// is synced; the WAL is left to the server as long as the server keeps it short.
pub fn prepare_beside(conn: &Connection) -> Result<()> {
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    let pages = BESIDE_WAL_BYTES / page_bytes(conn)?.max(1);
    conn.pragma_update(None, "wal_autocheckpoint", pages.cast_signed())?;
    set_full(conn, true)
}

/// Sets whether a commit fsyncs the WAL (FULL) or not (NORMAL). Call outside a transaction.
pub fn set_full(conn: &Connection, full: bool) -> Result<()> {
    let level = if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
    Ok(conn.execute_batch(level)?)
}

/// Page size of the file, in bytes.
pub fn page_bytes(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare_cached("PRAGMA page_size")?;
    Ok(statement.query_row([], |row| value::unsigned(row, 0))?)
}

/// `path` with `suffix` appended, as SQLite names the files beside a database.
pub fn companion_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// `path` as a percent-encoded URI for SQLite.
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
