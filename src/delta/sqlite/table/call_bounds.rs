//! `acetate_tool_call`: the rows of the audit log that were written while a tool call ran.
//!
//! A committed row of the log never changes, so each row is in a call or not. The table exists from
//! the first call with bounds on.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::delta::{CheckpointId, Result};

use super::{checkpoint, schema, value};

/// The table's name.
pub const NAME: &str = "acetate_tool_call";

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS acetate_tool_call (
  call INTEGER PRIMARY KEY,
  begin_op INTEGER NOT NULL,
  end_op INTEGER NOT NULL,
  checkpoint INTEGER
)";

/// The rows of the log that were written while a call ran: those after `begin_op`, up to `end_op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBounds {
    /// The last row of the log before the call; 0 if there was none.
    pub begin_op: i64,
    /// The last row at its end.
    pub end_op: i64,
    /// The checkpoint of the tree before the call. It may have been removed since.
    pub checkpoint: Option<CheckpointId>,
}

/// What is known of a call when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBegin {
    /// The last row of the log, or an earlier one; if nothing changed since the checkpoint, the
    /// rows between are REFUSE.
    pub last_op: i64,
    /// The checkpoint that was made for the call, or used again.
    pub checkpoint: Option<CheckpointId>,
}

impl CallBounds {
    /// Whether nothing changed while the call ran.
    pub fn is_empty(&self) -> bool {
        self.begin_op >= self.end_op
    }

    /// Whether the row of the log with this id is in the call.
    pub fn has(&self, row: i64) -> bool {
        self.begin_op < row && row <= self.end_op
    }

    /// Whether a row of the log is in both calls.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.begin_op.max(other.begin_op) < self.end_op.min(other.end_op)
    }
}

/// The last row of the log; 0 if there is none.
pub fn last_op(conn: &Connection) -> Result<i64> {
    if !schema::has_table(conn, "acetate_op")? {
        return Ok(0);
    }
    let last = "SELECT ifnull(max(id), 0) FROM acetate_op";
    Ok(conn.prepare_cached(last)?.query_row([], |row| row.get(0))?)
}

/// Creates the table, if it is missing.
pub fn create(conn: &Connection) -> Result<()> {
    Ok(conn.execute_batch(TABLE)?)
}

/// Stores the bounds of a call that ends now, in the caller's transaction: its last row is that of
/// the log.
pub fn put_ended(conn: &Connection, call: i64, begin: CallBegin) -> Result<()> {
    create(conn)?;
    let made = begin.checkpoint.map(|id| checkpoint::get(conn, id)).transpose()?.flatten();
    // The call begins at its checkpoint, which a restore of the call goes back to.
    let begin_op = made.map_or(0, |made| made.last_op).max(begin.last_op);
    // A program may have removed a call, and given its number out again.
    let mut put = conn.prepare(
        "INSERT OR REPLACE INTO acetate_tool_call (call, begin_op, end_op, checkpoint)
         VALUES (?1, ?2, ?3, ?4)",
    )?;
    put.execute(params![call, begin_op, last_op(conn)?, begin.checkpoint.map(|id| id.0)])?;
    Ok(())
}

/// Whether the session has bounds of any call.
pub fn is_used(conn: &Connection) -> Result<bool> {
    schema::has_table(conn, NAME)
}

/// The columns that [`read`] reads.
pub const COLUMNS: &str =
    "acetate_tool_call.begin_op, acetate_tool_call.end_op, acetate_tool_call.checkpoint";

/// Reads [`COLUMNS`], from column `at` on. `None` if the call has no row in the table, or one that
/// is no range: it begins below 0, or ends before it begins.
pub fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<CallBounds>> {
    let numbers = (value::optional_int(row, at)?, value::optional_int(row, at + 1)?);
    let (Some(begin_op), Some(end_op)) = numbers else { return Ok(None) };
    let checkpoint = value::optional_int(row, at + 2)?.map(CheckpointId);
    let bounds = CallBounds { begin_op, end_op, checkpoint };
    Ok((0 <= begin_op && begin_op <= end_op).then_some(bounds))
}

/// A condition for rows that break T1: they have no call, or bounds that are none.
fn unsound(conn: &Connection) -> Result<String> {
    let calls = match schema::has_table(conn, "tool_calls")? {
        true => "SELECT id FROM tool_calls",
        false => "SELECT NULL WHERE 0",
    };
    Ok(format!(
        "call NOT IN ({calls}) OR typeof(begin_op) <> 'integer' OR typeof(end_op) <> 'integer'
           OR begin_op < 0 OR begin_op > end_op OR end_op > {}",
        last_op(conn)?
    ))
}

/// A row that breaks T1.
pub fn first_unsound(conn: &Connection) -> Result<Option<i64>> {
    if !is_used(conn)? {
        return Ok(None);
    }
    let first = format!("SELECT call FROM acetate_tool_call WHERE {} LIMIT 1", unsound(conn)?);
    Ok(conn.query_row(&first, [], |row| row.get(0)).optional()?)
}

/// Deletes the rows that break T1; the calls stay, without bounds. Returns how many there were.
pub fn delete_unsound(conn: &Connection) -> Result<usize> {
    if !is_used(conn)? {
        return Ok(0);
    }
    Ok(conn.execute(&format!("DELETE FROM acetate_tool_call WHERE {}", unsound(conn)?), [])?)
}
