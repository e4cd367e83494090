//! Incomplete checkpoints: rows changed that were not saved for them (`acetate_checkpoint`'s column
//! of that name).

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::delta::{Incomplete, Result};

use super::schema;

/// Whether the table has the column; earlier versions made it without.
pub(super) fn has_column(conn: &Connection) -> Result<bool> {
    schema::has_column(conn, "acetate_checkpoint", "incomplete")
}

/// Adds the column where the table lacks it.
pub fn add_column(conn: &Connection) -> Result<()> {
    if !has_column(conn)? {
        conn.execute_batch("ALTER TABLE acetate_checkpoint ADD COLUMN incomplete TEXT")?;
    }
    Ok(())
}

/// What the column's value means. A later version may know other words.
pub(super) fn read(value: ValueRef<'_>) -> Option<Incomplete> {
    match value {
        ValueRef::Null => None,
        value => {
            let known = value.as_str().ok().and_then(Incomplete::from_word);
            Some(known.unwrap_or(Incomplete::OtherProgram))
        }
    }
}

/// Marks all checkpoints as incomplete; returns how many were not. The newest is marked once more
/// if from now on nothing is saved for it.
pub fn mark_all(conn: &Connection, why: Incomplete) -> Result<usize> {
    let mark = match why {
        Incomplete::OtherProgram => {
            "UPDATE acetate_checkpoint SET incomplete = ?1 WHERE incomplete IS NULL"
        }
        Incomplete::NoRoom => {
            "UPDATE acetate_checkpoint SET incomplete = ?1 WHERE incomplete IS NULL
               OR incomplete <> ?1 AND id = (SELECT max(id) FROM acetate_checkpoint)"
        }
    };
    Ok(conn.execute(mark, [why.as_str()])?)
}

/// The checkpoints with a word in the column that is not known.
pub fn unknown(conn: &Connection) -> Result<Vec<(i64, String)>> {
    if !has_column(conn)? {
        return Ok(Vec::new());
    }
    let mut unknown = conn.prepare(&format!(
        "SELECT id, quote(incomplete) FROM acetate_checkpoint c WHERE {IS_UNKNOWN} ORDER BY id"
    ))?;
    let unknown = unknown.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(unknown.collect::<rusqlite::Result<_>>()?)
}

/// Makes these words known: the checkpoints stay incomplete.
pub fn mend_unknown(conn: &Connection) -> Result<()> {
    let mend = format!("UPDATE acetate_checkpoint AS c SET incomplete = ?1 WHERE {IS_UNKNOWN}");
    conn.execute(&mend, [Incomplete::OtherProgram.as_str()])?;
    Ok(())
}

/// SQL: the condition that the word of `c` is not known.
const IS_UNKNOWN: &str =
    "c.incomplete IS NOT NULL AND c.incomplete NOT IN ('other-program', 'no-room')";

/// Whether rows are saved for the newest checkpoint.
pub fn is_saving(conn: &Connection) -> Result<bool> {
    let saving = format!("SELECT 1 FROM acetate_checkpoint c WHERE {IS_SAVING}");
    Ok(conn.prepare_cached(&saving)?.exists([])?)
}

/// SQL: the condition that `c` is the newest checkpoint, and rows are saved for it.
pub const IS_SAVING: &str =
    "c.id = (SELECT max(id) FROM acetate_checkpoint) AND c.incomplete IS NOT 'no-room'";
