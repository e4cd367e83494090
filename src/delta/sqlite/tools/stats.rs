//! Statistics of a session file.

use rusqlite::{Connection, OptionalExtension};

use crate::delta::{Limits, PendingCopies, Result, Usage};

use crate::delta::sqlite::file::connect::{companion_path, page_bytes};
use crate::delta::sqlite::file::disk::byte_len;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch};
use crate::delta::sqlite::table::audit_bound;
use crate::delta::sqlite::table::{copy_up, original, quota, schema, value};

/// Counts and sizes of a session file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStats {
    /// Length of the session file, in bytes.
    pub file_bytes: u64,
    /// Length of the WAL, in bytes.
    pub wal_bytes: u64,
    /// Free pages of the file that compaction would return, in bytes.
    pub free_bytes: u64,
    /// Page size, in bytes.
    pub page_bytes: u64,
    /// Regular files, new or copied up.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Objects of any other type.
    pub specials: u64,
    /// How many of all these objects were copied up.
    pub copied_up: u64,
    /// Total length of the stored chunks, in bytes.
    pub content_bytes: u64,
    /// Quota usage, if the session has a limit.
    pub usage: Option<Usage>,
    /// The session's own limits.
    pub limits: Limits,
    /// Number of whiteouts.
    pub whiteouts: u64,
    /// Number of redirected directories.
    pub redirects: u64,
    /// Copy-ups that are not finished.
    pub pending: PendingCopies,
    /// Base files and links whose original content is stored.
    pub originals: u64,
    /// Total size of that content, in bytes.
    pub original_bytes: u64,
    /// Number of rows in the audit log.
    pub changes: u64,
    /// Number of older rows deleted from it.
    pub dropped_changes: u64,
    /// Size of the audit log's rows, in bytes, without page overhead.
    pub change_bytes: u64,
    /// Rows of `kv_store`.
    pub values: u64,
    /// Rows of `tool_calls`.
    pub tool_calls: u64,
    /// Whether the session is marked clean: it was closed, and everything is synced.
    pub is_closed: bool,
}

impl Session {
    /// Counts the content of the session, on one snapshot.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn stats(&self) -> Result<SessionStats> {
        let conn = open_read_only(&self.path)?;
        let conn = conn.unchecked_transaction()?;
        let page_bytes = page_bytes(&conn)?;
        let free_pages = conn.query_row("PRAGMA freelist_count", [], |r| value::unsigned(r, 0))?;
        let of_type =
            |bits: u32| count(&conn, &format!("fs_inode WHERE mode & 61440 = {bits} AND ino <> 1"));
        let (files, directories, symlinks) =
            (of_type(0o100_000)?, of_type(0o040_000)?, of_type(0o120_000)?);
        let objects = count(&conn, "fs_inode WHERE ino <> 1")?;
        let content = conn.query_row("SELECT sum(length(data)) FROM fs_data", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        let dropped_changes = audit_bound::dropped(&conn)?.map_or(0, |dropped| dropped.rows);
        let limits = quota::limits(&conn)?;
        let usage = match limits.is_some() {
            true => Some(quota::count(&conn, config::chunk_bytes(&conn)?)?.usage()),
            false => None,
        };
        let has_originals = schema::has_table(&conn, "acetate_original")?;
        Ok(SessionStats {
            usage,
            limits,
            file_bytes: byte_len(&self.path),
            wal_bytes: byte_len(&companion_path(&self.path, "-wal")),
            free_bytes: free_pages.saturating_mul(page_bytes),
            page_bytes,
            files,
            directories,
            symlinks,
            specials: objects.saturating_sub(files + directories + symlinks),
            copied_up: count(&conn, "acetate_origin WHERE delta_ino <> 1")?,
            content_bytes: content.unwrap_or(0).max(0).cast_unsigned(),
            whiteouts: count(&conn, "fs_whiteout")?,
            redirects: count(&conn, "acetate_redirect")?,
            pending: copy_up::total(&conn)?,
            originals: match has_originals {
                true => count(&conn, "acetate_original WHERE content IS NOT NULL")?,
                false => 0,
            },
            original_bytes: if has_originals { original::total_bytes(&conn)? } else { 0 },
            changes: last_change(&conn)?.saturating_sub(dropped_changes),
            dropped_changes,
            change_bytes: audit_bound::bytes(&conn)?,
            values: count_if_there(&conn, "kv_store")?,
            tool_calls: count_if_there(&conn, "tool_calls")?,
            is_closed: epoch::is_clean(&conn)?,
        })
    }

    /// The process id of the server that has the session, if it is known; `None` if no server has
    /// it.
    pub fn served_by(&self) -> Option<Option<u32>> {
        SessionLock::holder(&self.path)
    }
}

fn count(conn: &Connection, from: &str) -> Result<u64> {
    Ok(conn.query_row(&format!("SELECT count(*) FROM {from}"), [], |r| value::unsigned(r, 0))?)
}

fn count_if_there(conn: &Connection, table: &str) -> Result<u64> {
    if schema::has_table(conn, table)? { count(conn, table) } else { Ok(0) }
}

/// The number of audit rows ever written: rows are added at the end and deleted at the beginning,
/// so this is the last id.
fn last_change(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare("SELECT max(id) FROM acetate_op")?;
    let last = statement.query_row([], |row| row.get::<_, Option<i64>>(0)).optional()?;
    Ok(last.flatten().unwrap_or(0).max(0).cast_unsigned())
}
