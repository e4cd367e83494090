//! `acetate_meta`: what the session remembers about itself.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::Result;

/// The newest format of our own tables that this program knows (invariant M1).
pub const FORMAT_VERSION: i64 = 2;

/// The format of a new session, which every version reads.
pub const FIRST_FORMAT: i64 = 1;

/// The format of a session that has, or had, a row in `acetate_opaque`.
pub const OPAQUE_FORMAT: i64 = 2;

/// The format of a session that hides, or hid, paths of the base.
pub const HIDE_FORMAT: i64 = 2;

/// From [`FIRST_FORMAT`] to [`FORMAT_VERSION`].
pub const FORMAT: &str = "format_version";
/// 32 hexadecimal digits.
pub const SESSION_ID: &str = "session_id";
/// 16 random bytes that file handles are signed with.
pub const HANDLE_KEY: &str = "handle_key";
/// The boot epoch (invariant M3).
pub const EPOCH: &str = "boot_epoch";
/// The machine's boot in which the session was last written.
pub const BOOT_ID: &str = "boot_id";
/// 1 if everything that was ever acknowledged is synced, 0 while that is not certain.
pub const CLEAN: &str = "clean";
/// Numbers from here on are fresh (invariant M2).
pub const NEXT_INO: &str = "next_ino";
/// The largest `fs_dentry.id` at the last clean close: another one means that another program
/// added entries.
pub const LAST_DENTRY: &str = "last_dentry";
/// The largest `acetate_op.id` when the session was last found not closed: the answers to calls up
/// to there may not have arrived.
pub const LATE_OP: &str = "late_op";
/// Counts the syncs that had nothing else to write.
pub(super) const SYNCS: &str = "syncs";

/// The most bytes that contents may take; none where there is no such row (invariant M5).
pub const QUOTA_BYTES: &str = "quota_bytes";
/// The same of objects.
pub const QUOTA_FILES: &str = "quota_files";
/// The largest file, in bytes (invariant M5).
pub const MAX_FILE_BYTES: &str = "max_file_bytes";

/// Patterns of the base's paths that are never shown, one a line; no row if none (invariant M7).
pub const HIDE: &str = "hide";

/// How many rows the audit log lost at its beginning (invariant M6).
pub const AUDIT_DROPPED: &str = "audit_dropped";
/// When the first of them was written, in seconds since 1970.
pub const AUDIT_SINCE: &str = "audit_since";

/// The newest rows of the audit log that a server keeps, in rows; no row if it deletes none.
pub const LOG_KEEP_ROWS: &str = "log_keep_rows";
/// The same by age, in seconds.
pub const LOG_KEEP_SECS: &str = "log_keep_secs";

/// 1 if `acetate_past` has what is needed of all rows that the audit log lost.
pub(super) const AUDIT_KEPT: &str = "audit_kept";

/// `agentfs` where `fs_origin` was emptied for it.
pub(super) const SEALED_FOR: &str = "sealed_for";

/// Reads a value.
pub fn get<T: FromSql>(conn: &Connection, key: &str) -> Result<Option<T>> {
    let mut statement = conn.prepare_cached("SELECT value FROM acetate_meta WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

/// Writes a value.
pub fn put(conn: &Connection, key: &str, value: impl ToSql) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO acetate_meta (key, value) VALUES (?1, ?2)
         ON CONFLICT(key) DO UPDATE SET value = excluded.value",
    )?;
    statement.execute(params![key, value])?;
    Ok(())
}

/// Says that the file has at least this format.
pub(super) fn require_format(conn: &Connection, format: i64) -> Result<()> {
    let mut statement =
        conn.prepare_cached("UPDATE acetate_meta SET value = ?2 WHERE key = ?1 AND value < ?2")?;
    statement.execute(params![FORMAT, format])?;
    Ok(())
}

/// Deletes a value.
pub fn delete(conn: &Connection, key: &str) -> Result<()> {
    conn.prepare_cached("DELETE FROM acetate_meta WHERE key = ?1")?.execute([key])?;
    Ok(())
}

/// Changes something, so that the transaction is not empty: SQLite syncs nothing for one that
/// is, and does not count a row as changed that is replaced by an equal one.
pub fn count_sync(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO acetate_meta (key, value) VALUES (?1, 1)
         ON CONFLICT(key) DO UPDATE SET value = value + 1",
    )?;
    statement.execute([SYNCS])?;
    Ok(())
}
