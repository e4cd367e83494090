//! `acetate_meta`: keys and values about the session itself.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::Result;

/// The newest format of our own tables that this program supports (invariant M1).
pub const FORMAT_VERSION: i64 = 2;

/// The format of a new session; every version of acetate reads it.
pub const FIRST_FORMAT: i64 = 1;

/// The format of a session that has, or had, a row in `acetate_opaque`.
pub const OPAQUE_FORMAT: i64 = 2;

/// The format of a session that hides, or hid, paths of the base.
pub const HIDE_FORMAT: i64 = 2;

/// The format of a session that has, or had, a checkpoint: an older program would change rows
/// without saving them, and take the changes before a restore for the tree's.
pub const CHECKPOINT_FORMAT: i64 = 2;

/// The session's format, from [`FIRST_FORMAT`] to [`FORMAT_VERSION`].
pub const FORMAT: &str = "format_version";
/// The session's id, 32 hexadecimal digits.
pub const SESSION_ID: &str = "session_id";
/// Key of the file handles' MAC, 16 random bytes.
pub const HANDLE_KEY: &str = "handle_key";
/// The boot epoch (invariant M3).
pub const EPOCH: &str = "boot_epoch";
/// The machine's boot in which the session was last written.
pub const BOOT_ID: &str = "boot_id";
/// 1 if everything acknowledged is certainly synced, 0 otherwise (invariant M4).
pub const CLEAN: &str = "clean";
/// Numbers from here on were never allocated (invariant M2).
pub const NEXT_INO: &str = "next_ino";
/// The largest `fs_dentry.id` at the last clean close. A different one later means that another
/// program added entries.
pub const LAST_DENTRY: &str = "last_dentry";
/// The largest `acetate_op.id` at the last unclean shutdown: replies to calls up to this row may
/// not have reached the client.
pub const LATE_OP: &str = "late_op";
/// The name under which the session is in another store, if it was moved there.
pub const MOVED_TO: &str = "moved_to";
/// Of a replica: the name of its session in the other store, for people.
pub const REPLICA_OF: &str = "replica_of";
/// Of a replica: the number of the last batch of the other store that it has.
pub const SEQ: &str = "replica_seq";
/// Of a replica: the random number of that batch.
pub const STAMP: &str = "replica_stamp";
/// Counts syncs that had no other row to write.
pub const SYNCS: &str = "syncs";

/// Limit of the contents' bytes; no row if unlimited (invariant M5).
pub const QUOTA_BYTES: &str = "quota_bytes";
/// Limit of names and whiteouts; no row if unlimited.
pub const QUOTA_FILES: &str = "quota_files";
/// Limit of one file's size, in bytes (invariant M5).
pub const MAX_FILE_BYTES: &str = "max_file_bytes";

/// Patterns of base paths that are never shown, one per line; no row if none (invariant M7).
pub const HIDE: &str = "hide";

/// Number of rows deleted from the beginning of the audit log (invariant M6).
pub const AUDIT_DROPPED: &str = "audit_dropped";
/// When the first of those rows was written, in seconds since 1970.
pub const AUDIT_SINCE: &str = "audit_since";

/// Maximum number of audit rows that a server keeps; no row if unlimited.
pub const LOG_KEEP_ROWS: &str = "log_keep_rows";
/// Maximum age of audit rows, in seconds; no row if unlimited.
pub const LOG_KEEP_SECS: &str = "log_keep_secs";

/// Number of automatic checkpoints that are always kept; no row if as usual.
pub const CHECKPOINTS_NEWEST: &str = "checkpoints_newest";
/// Age up to which one of each hour is kept, in seconds; no row if as usual.
pub const CHECKPOINTS_HOURLY: &str = "checkpoints_hourly_secs";
/// Age up to which one of each day is kept, in seconds; no row for any age.
pub const CHECKPOINTS_DAILY: &str = "checkpoints_daily_secs";

/// Most bytes that rows saved for checkpoints take; no row if as usual.
pub const CHECKPOINTS_BYTES: &str = "checkpoints_bytes";

/// The checkpoint that the last restore went back to.
pub const RESTORED_TO: &str = "restored_to";
/// The checkpoint of the tree before the last restore.
pub const RESTORED_FROM: &str = "restored_from";

/// A sum over the tree's rows at the last clean close, if there was a checkpoint, and the last row
/// of `acetate_op` then.
pub const TREE_SUM: &str = "tree_sum";

/// 1 if `acetate_past` has the needed facts of all rows deleted from the audit log.
pub(super) const AUDIT_KEPT: &str = "audit_kept";

/// Of a fork: the id of the session that was forked.
pub const FORK_OF: &str = "fork_of";
/// Of a fork: the checkpoint of that session at which it began.
pub const FORK_POINT: &str = "fork_point";

/// `agentfs` if `fs_origin` was emptied for that implementation.
pub(super) const SEALED_FOR: &str = "sealed_for";

pub fn get<T: FromSql>(conn: &Connection, key: &str) -> Result<Option<T>> {
    let mut statement = conn.prepare_cached("SELECT value FROM acetate_meta WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

pub fn put(conn: &Connection, key: &str, value: impl ToSql) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO acetate_meta (key, value) VALUES (?1, ?2)
         ON CONFLICT(key) DO UPDATE SET value = excluded.value",
    )?;
    statement.execute(params![key, value])?;
    Ok(())
}

/// Raises the file's format to at least `format`.
pub(super) fn require_format(conn: &Connection, format: i64) -> Result<()> {
    let mut statement =
        conn.prepare_cached("UPDATE acetate_meta SET value = ?2 WHERE key = ?1 AND value < ?2")?;
    statement.execute(params![FORMAT, format])?;
    Ok(())
}

pub fn delete(conn: &Connection, key: &str) -> Result<()> {
    conn.prepare_cached("DELETE FROM acetate_meta WHERE key = ?1")?.execute([key])?;
    Ok(())
}

/// Changes a row, so that the transaction is not empty. SQLite syncs nothing for an empty one, and
/// replacing a row by an equal one does not count as a change.
pub fn count_sync(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO acetate_meta (key, value) VALUES (?1, 1)
         ON CONFLICT(key) DO UPDATE SET value = value + 1",
    )?;
    statement.execute([SYNCS])?;
    Ok(())
}
