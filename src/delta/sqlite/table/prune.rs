//! Deletes the oldest rows of the audit log: by the owner's command, or because of its bound.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::Result;
use crate::vfs::Time;

use super::{meta, op, past};

/// What happens to the facts in deleted rows that `apply` needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrunedFacts {
    /// They are kept in `acetate_past`: about one row per object that the session holds or hides.
    Kept,
    /// They are deleted, so that a client cannot make the session exceed its bound.
    Dropped,
}

/// Deletes the rows up to `last` in the caller's transaction, records their number (invariant M6)
/// and returns it.
pub fn cut(conn: &Connection, last: i64, past: PrunedFacts) -> Result<u64> {
    match past {
        PrunedFacts::Kept => past::keep(conn, last)?,
        PrunedFacts::Dropped => past::note_incomplete(conn)?,
    }
    let mut first = conn.prepare_cached("SELECT time FROM acetate_op ORDER BY id LIMIT 1")?;
    let since = first.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    let deleted = conn.prepare_cached("DELETE FROM acetate_op WHERE id <= ?1")?.execute([last])?;
    if deleted == 0 {
        return Ok(0);
    }
    let before = meta::get::<i64>(conn, meta::AUDIT_DROPPED)?;
    if before.is_none() {
        meta::put(conn, meta::AUDIT_SINCE, since.unwrap_or(0))?;
    }
    let dropped = before.unwrap_or(0).saturating_add(i64::try_from(deleted).unwrap_or(i64::MAX));
    meta::put(conn, meta::AUDIT_DROPPED, dropped)?;
    Ok(deleted as u64)
}

/// The last row that may be deleted at `now`. Rows after it are kept: the last row, so that no id
/// is reused, and rows that the reply cache needs after a crash.
pub fn last_prunable(conn: &Connection, now: Time) -> Result<i64> {
    let since = now.secs.saturating_sub(op::LATE_SECS);
    let first_kept: Option<i64> = conn.query_row(
        "SELECT min(first) FROM (
           SELECT max(id) AS first FROM acetate_op
           UNION ALL
           SELECT min(id) FROM acetate_op
           WHERE id > (SELECT max(id) FROM acetate_op) - ?1 AND time > ?2)",
        params![op::LATE_ROWS, since],
        |row| row.get(0),
    )?;
    Ok(first_kept.map_or(0, |first| first.saturating_sub(1)))
}
