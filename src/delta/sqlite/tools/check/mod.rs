//! Checks a session file against every invariant of docs/SCHEMA.md, on one snapshot, whoever
//! serves it meanwhile.
//!
//! One file for each group of rules; most are queries that return what breaks them. A rule that
//! other implementations may break, and that acetate can live without, gives notes instead of
//! findings in a file that one of them wrote to.

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
use crate::delta::{Ino, Origin, Result, StoreError};

use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch, probe};
use crate::delta::sqlite::table::{dentry, inode, meta, schema};
pub(super) use entries::misfit;
pub(super) use found::InodePaths;
use found::RuleFindings;
pub(super) use redirects::shown_at_its_place;
pub use rules::RULES;

/// What is checked, and how much is told.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions {
    /// Findings that are told of each rule; the rest is counted.
    pub most: usize,
    /// Leaves SQLite's own check of the file out, which reads all of it.
    pub quick: bool,
}

/// What breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The inode that it is about.
    pub ino: Option<i64>,
    /// The path of that in the merged tree, where it can be told.
    pub path: Option<Vec<u8>>,
    /// What is wrong.
    pub what: String,
}

/// A rule that is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule's number in docs/SCHEMA.md, or [`INTEGRITY`].
    pub rule: &'static str,
    /// Whether acetate can live with it, in this file.
    pub is_note: bool,
    /// How often.
    pub count: u64,
    /// The first of what breaks it.
    pub first: Vec<Breach>,
}

/// Stands for SQLite's own check of the file.
pub const INTEGRITY: &str = "integrity";

/// A file whose content is partly still the base's (invariant C3 is about it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its inode.
    pub ino: i64,
    /// Its path in the merged tree, where it can be told.
    pub path: Option<Vec<u8>>,
    /// What it was in the base.
    pub origin: Origin,
}

/// A directory through which the base shows at another path than its own (invariant R1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectedDir {
    /// Its inode.
    pub ino: i64,
    /// Its path in the merged tree, where it can be told.
    pub path: Option<Vec<u8>>,
    /// The base directory that shows.
    pub base: BasePath,
}

/// What checking a file came to.
#[derive(Debug)]
pub struct CheckReport {
    /// The broken rules, in the order of [`RULES`].
    pub broken: Vec<Broken>,
    /// Whether another implementation made the file, or wrote to it since it was last served.
    pub is_foreign: bool,
    /// Files whose base file has to be compared.
    pub pending: Vec<Pending>,
    /// Directories whose base directory has to be looked up in the base.
    pub redirected: Vec<RedirectedDir>,
    /// The base directory that the file records.
    pub base_path: Option<PathBuf>,
}

impl Session {
    /// Checks the session file `path`, as it is now.
    ///
    /// # Errors
    /// See [`OpenError`]: it is no session, or cannot be read.
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

/// The file while it is checked.
struct Subject<'c> {
    conn: &'c Connection,
    /// Chunk size, in bytes; `None` where the file says none that can be.
    chunk_bytes: Option<i64>,
    /// Whether acetate ever served it: its own tables mean something.
    is_served: bool,
}

/// Checks an open file, in a transaction that it begins.
pub(super) fn check(conn: &Connection, options: &CheckOptions) -> Result<CheckReport> {
    // Temporary tables count as changes, though not of the file.
    conn.pragma_update(None, "query_only", false)?;
    // One moment for all.
    conn.execute_batch("BEGIN")?;
    stand_in(conn)?;
    let subject = Subject {
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
    ] {
        match check(&subject, &mut found) {
            // What cannot be read any further is a finding like others.
            Err(StoreError::Corrupt(text)) => found.damage(text),
            checked => checked?,
        }
    }
    let broken = found.end(conn, is_foreign)?;
    let pending = pending(conn)?;
    // What cannot be read of them is among the findings.
    let redirected = redirects::all(conn).unwrap_or_default();
    let base_path = config::base_path(conn)?;
    Ok(CheckReport { broken, is_foreign, pending, redirected, base_path })
}

/// Gives what is asked empty tables for those that other implementations leave out.
fn stand_in(conn: &Connection) -> Result<()> {
    if !schema::has_table(conn, "fs_origin")? {
        conn.execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino)",
        )?;
    }
    Ok(())
}

/// Whether another implementation made the file, or added entries since acetate closed it:
/// acetate counts links anew when it opens it next.
fn is_foreign(subject: &Subject<'_>) -> Result<bool> {
    let conn = subject.conn;
    let id: i64 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if !subject.is_served || id != i64::from(crate::delta::sqlite::file::create::APPLICATION_ID) {
        return Ok(true);
    }
    let last = meta::get::<rusqlite::types::Value>(conn, meta::LAST_DENTRY)?;
    let is_clean = epoch::is_clean(conn).unwrap_or(false);
    Ok(is_clean && last != Some(dentry::last_id(conn)?.into()))
}

/// SQLite's own check.
fn integrity(subject: &Subject<'_>, found: &mut RuleFindings) {
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

/// The files whose content is partly still the base's, where the session says what they were.
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
        // One that cannot be read is O1's.
        let Ok(Some(row)) = inode::get(conn, Ino(ino.cast_unsigned())) else { continue };
        if let Some(origin) = row.origin {
            pending.push(Pending { ino, path: paths.of(ino)?, origin });
        }
    }
    Ok(pending)
}
