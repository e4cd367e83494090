//! What a session file holds, in numbers.

use rusqlite::{Connection, OptionalExtension};

use crate::delta::{Limits, PendingCopies, Result, Usage};

use crate::delta::sqlite::file::connect::{beside, page_bytes};
use crate::delta::sqlite::file::disk::byte_len;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch};
use crate::delta::sqlite::table::audit_bound;
use crate::delta::sqlite::table::{copy_up, original, quota, schema, value};

/// What a session file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log beside it.
    pub log_bytes: u64,
    /// Bytes of the file that are free, and can be given back.
    pub free_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Regular files, made or copied up.
    pub files: u64,
    /// Directories, but for the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Anything else.
    pub specials: u64,
    /// Of all these, those that come from the base.
    pub copied_up: u64,
    /// Bytes of stored chunks.
    pub content_bytes: u64,
    /// What it takes of its quota, if it has one.
    pub usage: Option<Usage>,
    /// How much it may take.
    pub limits: Limits,
    /// Names of the base that are hidden.
    pub whiteouts: u64,
    /// Directories of the base that moved.
    pub redirects: u64,
    /// Copy-ups that are not finished.
    pub pending: PendingCopies,
    /// Base files and links of which it keeps the content that they had before the first change.
    pub originals: u64,
    /// Bytes of their contents.
    pub original_bytes: u64,
    /// Rows of the audit log.
    pub changes: u64,
    /// Older rows that it has no more.
    pub dropped_changes: u64,
    /// Bytes that these take, pages and what they have free not counted.
    pub change_bytes: u64,
    /// Values that agents keep.
    pub values: u64,
    /// Tool calls that agents recorded.
    pub tool_calls: u64,
    /// Whether everything is known to be on the disk: the session was closed, and not killed.
    pub is_closed: bool,
}

impl Session {
    /// Counts what the session holds, at one moment.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn figures(&self) -> Result<Figures> {
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
        Ok(Figures {
            usage,
            limits,
            file_bytes: byte_len(&self.path),
            log_bytes: byte_len(&beside(&self.path, "-wal")),
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

    /// The process id of the server that has the session, as far as that is known: `None` where
    /// none has it.
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

/// Rows of the audit log are only added at its end, and dropped at its beginning: its last id is
/// the number of all of them.
fn last_change(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare("SELECT max(id) FROM acetate_op")?;
    let last = statement.query_row([], |row| row.get::<_, Option<i64>>(0)).optional()?;
    Ok(last.flatten().unwrap_or(0).max(0).cast_unsigned())
}
