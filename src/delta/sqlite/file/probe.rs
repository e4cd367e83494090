//! Checks a file before it is opened as a session, without creating or changing a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::delta::{Result, StoreError, StoreErrorKind};

use super::connect::{self, Role, companion_path};
use super::disk::{byte_len, may_not_read};
use super::error::OpenError;
use crate::delta::sqlite::table::meta;
use crate::delta::sqlite::table::schema::SPEC_VERSION;

/// Tables that every session has.
const CORE_TABLES: [&str; 5] = ["fs_config", "fs_inode", "fs_dentry", "fs_data", "fs_symlink"];

/// First bytes of a database encrypted by the engine of other AgentFS implementations.
const ENCRYPTED_MAGIC: &[u8] = b"Turso";

/// SQLite's smallest page, in bytes: SQLite treats a shorter file as an empty database.
const LEAST_PAGE_BYTES: u64 = 512;

/// Refuses a file that is not a session, or one that this program cannot open.
pub fn check(path: &Path) -> std::result::Result<(), OpenError> {
    let info = companion_path(path, "-info");
    if info.exists() {
        return Err(OpenError::CloudSynced { path: path.to_owned(), info });
    }
    if may_not_read(path) {
        return Err(OpenError::Denied { path: path.to_owned() });
    }
    if byte_len(path) < LEAST_PAGE_BYTES {
        return Err(OpenError::NotSqlite { path: path.to_owned() });
    }
    // Without locks and without the WAL: this creates no file. The result is final unless a WAL
    // holds a part of the database.
    let alone = check_as(path, Role::Immutable);
    let decided = matches!(
        alone,
        Err(OpenError::NotSqlite { .. }
            | OpenError::Encrypted { .. }
            | OpenError::Newer { .. }
            | OpenError::NewerSpec { .. })
    );
    if decided {
        return alone.map(|_page_bytes| ());
    }
    if byte_len(&companion_path(path, "-wal")) == 0 {
        // SQLite detects missing pages, but not a truncated last page.
        return alone.and_then(|page_bytes| check_length(path, page_bytes));
    }
    check_as(path, Role::ReadOnly).map(|_page_bytes| ())
}

/// Whether a version of the specification, `MAJOR.MINOR`, is later than [`SPEC_VERSION`]. A
/// malformed version is not: then the columns decide.
fn is_newer_spec(version: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.trim().split('.').map(|part| part.parse().ok()).collect()
    };
    numbers(version).is_some_and(|found| Some(found) > numbers(SPEC_VERSION))
}

fn check_length(path: &Path, page_bytes: u32) -> std::result::Result<(), OpenError> {
    let length = byte_len(path);
    if length.is_multiple_of(u64::from(page_bytes)) {
        return Ok(());
    }
    let text = format!("{length} bytes are no whole number of pages of {page_bytes}: cut off");
    Err(OpenError::store(path, StoreError::corrupt(text)))
}

/// Returns the length of a page, in bytes.
fn check_as(path: &Path, role: Role) -> std::result::Result<u32, OpenError> {
    let columns = match connect::open(path, role).and_then(|conn| TableColumns::read(&conn)) {
        Ok(columns) => columns,
        Err(error) if error.kind == StoreErrorKind::Corrupt => {
            return Err(damaged(path, error.message()));
        }
        Err(error) => return Err(OpenError::store(path, error)),
    };
    if let Some(found) = columns.format.filter(|&format| format > meta::FORMAT_VERSION) {
        let known = meta::FORMAT_VERSION;
        return Err(OpenError::Newer { path: path.to_owned(), found, known });
    }
    if let Some(found) = columns.spec_version.clone().filter(|version| is_newer_spec(version)) {
        return Err(OpenError::NewerSpec { path: path.to_owned(), found });
    }
    if columns.tables.is_empty() {
        let wal = companion_path(path, "-wal");
        if byte_len(&wal) == 0 {
            return Err(OpenError::LostWal { path: path.to_owned(), wal });
        }
    }
    if let Some(version) = columns.old_version() {
        return Err(OpenError::OldSpec { path: path.to_owned(), version });
    }
    let missing: Vec<_> =
        CORE_TABLES.into_iter().filter(|table| !columns.tables.contains_key(*table)).collect();
    if missing.is_empty() {
        return Ok(columns.page_bytes);
    }
    Err(OpenError::NotSession { path: path.to_owned(), tables: missing.join(", ") })
}

/// Distinguishes a damaged database from a file that never was one.
///
/// Opens and closes the file outside of SQLite, which releases the locks that SQLite holds on it in
/// this process: a server has [others](super::lock).
fn damaged(path: &Path, text: &str) -> OpenError {
    let mut header = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    if read.is_ok() && header.starts_with(ENCRYPTED_MAGIC) {
        return OpenError::Encrypted { path: path.to_owned() };
    }
    if read.is_err() || header != *b"SQLite format 3\0" {
        return OpenError::NotSqlite { path: path.to_owned() };
    }
    OpenError::store(path, StoreError::corrupt(text.to_owned()))
}

/// A file's tables with their columns, and its versions.
struct TableColumns {
    tables: BTreeMap<String, BTreeSet<String>>,
    /// `acetate_meta.format_version`.
    format: Option<i64>,
    /// `fs_config.schema_version`: the specification's version, if the file has it.
    spec_version: Option<String>,
    /// Page size, in bytes.
    page_bytes: u32,
}

impl TableColumns {
    fn read(conn: &Connection) -> Result<Self> {
        let mut tables = BTreeMap::<String, BTreeSet<String>>::new();
        let mut statement = conn.prepare(
            "SELECT lower(m.name), lower(c.name)
             FROM main.sqlite_master m JOIN pragma_table_info(m.name) c
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            tables.entry(row.get(0)?).or_default().insert(row.get(1)?);
        }
        let format =
            if tables.contains_key("acetate_meta") { meta::get(conn, meta::FORMAT)? } else { None };
        let spec_version = match tables.get("fs_config") {
            Some(columns) if columns.contains("key") && columns.contains("value") => {
                let stored =
                    "SELECT CAST(value AS TEXT) FROM fs_config WHERE key = 'schema_version'";
                conn.query_row(stored, [], |row| row.get(0)).optional()?
            }
            _ => None,
        };
        let page_bytes = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        Ok(Self { tables, format, spec_version, page_bytes })
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// The version of the specification, if it is before 0.4.
    fn old_version(&self) -> Option<&'static str> {
        if !self.tables.contains_key("fs_inode") {
            return None;
        }
        if self.tables.contains_key("fs_data") && !self.has("fs_data", "chunk_index") {
            return Some("0.0");
        }
        if !self.has("fs_inode", "nlink") {
            return Some("0.1");
        }
        let new = ["rdev", "atime_nsec", "mtime_nsec", "ctime_nsec"];
        // As early files of version 0.3 had it; a migration that only adds columns keeps it so.
        if self.tables.contains_key("fs_dentry") && !self.has("fs_dentry", "id") {
            return Some("0.3");
        }
        if new.iter().all(|column| self.has("fs_inode", column)) {
            return None;
        }
        Some(if self.tables.contains_key("fs_origin") { "0.3" } else { "0.2" })
    }
}
