//! Checks a session file against every invariant of docs/SCHEMA.md, on one snapshot. A server may
//! have the file open.
//!
//! One file per group of rules; most rules are queries that return violations. If another
//! implementation wrote to the file, a broken rule that acetate tolerates is a note instead of a
//! finding.

mod checkpoints;
mod copies;
mod data;
mod entries;
mod found;
mod redirects;
mod rules;
mod session_rules;
mod tree;
mod whiteouts;

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::base::BasePath;
use crate::delta::{Ino, Origin, Result, StoreErrorKind};

use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch, probe};
use crate::delta::sqlite::table::{dentry, inode, meta, schema};
pub(super) use entries::storage_type_error;
pub(super) use found::InodePaths;
use found::RuleFindings;
pub(super) use redirects::shown_at_its_place;
pub use rules::RULES;

/// Options for a check.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions {
    /// Maximum number of findings reported per rule; further ones are only counted.
    pub most: usize,
    /// Skips SQLite's own integrity check, which reads the whole file.
    pub quick: bool,
}

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The affected inode.
    pub ino: Option<i64>,
    /// Its path in the merged tree, if it can be determined.
    pub path: Option<Vec<u8>>,
    /// A description of the violation.
    pub what: String,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule's number in docs/SCHEMA.md, or [`INTEGRITY`].
    pub rule: &'static str,
    /// Whether acetate tolerates the violation in this file.
    pub is_note: bool,
    /// Number of violations.
    pub count: u64,
    /// The first violations.
    pub first: Vec<Breach>,
}

/// The name used in place of a rule for SQLite's own integrity check.
pub const INTEGRITY: &str = "integrity";

/// A file whose copy-up is not finished (invariant C3 applies to it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its inode.
    pub ino: i64,
    /// Its path in the merged tree, if it can be determined.
    pub path: Option<Vec<u8>>,
    /// The base object that it is copied from.
    pub origin: Origin,
}

/// A directory with a redirect (invariant R1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectedDir {
    /// Its inode.
    pub ino: i64,
    /// Its path in the merged tree, if it can be determined.
    pub path: Option<Vec<u8>>,
    /// The base directory to which it is redirected.
    pub base: BasePath,
}

/// The result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// The broken rules, in the order of [`RULES`].
    pub broken: Vec<Broken>,
    /// Whether another implementation created the file, or wrote to it since it was last served.
    pub is_foreign: bool,
    /// Files to be compared with their base files.
    pub pending: Vec<Pending>,
    /// Directories whose redirect targets are to be looked up in the base.
    pub redirected: Vec<RedirectedDir>,
    /// The base directory that the file records.
    pub base_path: Option<PathBuf>,
}

impl Session {
    /// Checks the current state of the session file `path`.
    ///
    /// # Errors
    /// See [`OpenError`]: the file is no session, or cannot be read.
    pub fn check(
        path: &Path,
        options: &CheckOptions,
    ) -> std::result::Result<CheckReport, OpenError> {
        let path = &Self::existing(path)?;
        probe::check(path)?;
        let checked = open_read_only(path).and_then(|conn| check(&conn, options));
        checked.map_err(|error| OpenError::store(path, error))
    }
}

/// The file that is checked.
struct CheckedFile<'c> {
    conn: &'c Connection,
    /// Chunk size, in bytes; `None` if the recorded one is invalid.
    chunk_bytes: Option<i64>,
    /// Whether acetate ever served it, so that its own tables have content.
    is_served: bool,
}

/// Checks an open file, in a transaction that this function begins.
pub(super) fn check(conn: &Connection, options: &CheckOptions) -> Result<CheckReport> {
    // Creating temporary tables counts as a change in SQLite, though not of the file.
    conn.pragma_update(None, "query_only", false)?;
    // One snapshot for all checks.
    conn.execute_batch("BEGIN")?;
    create_temp_fs_origin(conn)?;
    let subject = CheckedFile {
        conn,
        chunk_bytes: config::chunk_bytes(conn).ok().and_then(|bytes| i64::try_from(bytes).ok()),
        is_served: conn.prepare("SELECT 1 FROM acetate_meta")?.exists([])?,
    };
    let is_foreign = is_foreign(&subject)?;
    let mut found = RuleFindings::new(options.most);
    if !options.quick {
        integrity(&subject, &mut found);
    }
    for check in [
        tree::check,
        entries::check,
        data::check,
        whiteouts::check,
        session_rules::check,
        copies::check,
        redirects::check,
        checkpoints::check,
    ] {
        match check(&subject, &mut found) {
            // A part that cannot be read is a finding.
            Err(error) if error.kind == StoreErrorKind::Corrupt => found.damage(error.message()),
            checked => checked?,
        }
    }
    let broken = found.end(conn, is_foreign)?;
    let pending = pending(conn)?;
    // A row that cannot be read is already among the findings.
    let redirected = redirects::all(conn).unwrap_or_default();
    let base_path = config::base_path(conn)?;
    Ok(CheckReport { broken, is_foreign, pending, redirected, base_path })
}

/// Creates an empty temporary `fs_origin` if the file has none, as those of other implementations.
fn create_temp_fs_origin(conn: &Connection) -> Result<()> {
    if !schema::has_table(conn, "fs_origin")? {
        conn.execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino)",
        )?;
    }
    Ok(())
}

/// Whether another implementation created the file, or added entries since acetate closed it. In
/// that case, acetate recounts links when it next opens the file.
fn is_foreign(subject: &CheckedFile<'_>) -> Result<bool> {
    let conn = subject.conn;
    let id: i64 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if !subject.is_served || id != i64::from(crate::delta::sqlite::file::create::APPLICATION_ID) {
        return Ok(true);
    }
    let last = meta::get::<rusqlite::types::Value>(conn, meta::LAST_DENTRY)?;
    let is_clean = epoch::is_clean(conn).unwrap_or(false);
    Ok(is_clean && last != Some(dentry::last_id(conn)?.into()))
}

/// Runs SQLite's own integrity check.
fn integrity(subject: &CheckedFile<'_>, found: &mut RuleFindings) {
    let asked = || -> Result<Vec<String>> {
        let mut statement = subject.conn.prepare("PRAGMA integrity_check")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
        Ok(lines.collect::<rusqlite::Result<_>>()?)
    };
    match asked() {
        Ok(lines) => lines.into_iter().filter(|line| line != "ok").for_each(|l| found.damage(l)),
        Err(error) => found.damage(error.to_string()),
    }
}

/// The files with an unfinished copy-up that have an origin.
fn pending(conn: &Connection) -> Result<Vec<Pending>> {
    let mut statement = conn.prepare(
        "SELECT u.delta_ino FROM acetate_copy_up u JOIN acetate_origin o USING (delta_ino)
         JOIN fs_inode i ON i.ino = u.delta_ino ORDER BY u.delta_ino",
    )?;
    let inos: Vec<i64> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut pending = Vec::new();
    let paths = found::InodePaths::new(conn)?;
    for ino in inos {
        // An unreadable row is a finding of O1.
        let Ok(Some(row)) = inode::get(conn, Ino(ino.cast_unsigned())) else { continue };
        if let Some(origin) = row.origin {
            pending.push(Pending { ino, path: paths.of(ino)?, origin });
        }
    }
    Ok(pending)
}
