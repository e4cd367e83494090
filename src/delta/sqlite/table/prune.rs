//! Takes the oldest rows out of the audit log: when its owner asks for it, and where it is bounded.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::Result;
use crate::vfs::Time;

use super::{meta, op, past};

/// What becomes of what `apply` needs of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrunedFacts {
    /// It is kept: about a row for each object that the session holds or hides.
    Kept,
    /// It goes too, so that a client cannot make the session grow past its bound.
    Dropped,
}

/// Deletes the rows up to `last` in the caller's transaction; how many they were is noted
/// (invariant M6).
pub(super) fn cut(conn: &Connection, last: i64, past: PrunedFacts) -> Result<u64> {
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

/// The last row that may leave the log at `now`: behind it are the last row of all, so that no
/// number is given out twice, and those that the reply cache needs after a kill.
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
