//! What the audit log says of the way back to a checkpoint.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::restore_rows::RestoreRows;
use crate::delta::sqlite::table::{schema, value};
use crate::delta::{Checkpoint, Result};

/// The most rows that are read to say what a restore changes.
pub(super) const MAX_ROWS: u64 = 1 << 20;

/// What a restore of a checkpoint takes back, by the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepsBack {
    /// What was noted with the last restore that is taken back.
    pub restored: Option<String>,
    /// Paths at which changes were discarded.
    pub discarded: HashSet<Vec<u8>>,
    /// Paths with other changes.
    pub changed: HashSet<Vec<u8>>,
}

impl Session {
    /// What a restore of this checkpoint takes back.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn steps_back(&self, to: &Checkpoint) -> Result<StepsBack> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        let mut steps = StepsBack::default();
        if !schema::has_table(&snapshot, "acetate_op")? {
            return Ok(steps);
        }
        let last = "SELECT ifnull(max(id), 0) FROM acetate_op";
        let now = snapshot.query_row(last, [], |row| row.get(0))?;
        let rows = RestoreRows::load(&snapshot)?.differing(now, to.last_op);
        let mut left = MAX_ROWS;
        each_path(&snapshot, &rows.only_first, &mut left, &mut |procedure, path| {
            match procedure {
                "DISCARD" => steps.discarded.insert(path),
                _ => steps.changed.insert(path),
            };
        })?;
        if let Some(id) = rows.restores.first() {
            let note = "SELECT ifnull(note, '') FROM acetate_op WHERE id = ?1";
            steps.restored = snapshot.query_row(note, [id], |row| row.get(0)).optional()?;
        }
        Ok(steps)
    }
}

/// Calls `each` with the procedure and path of the changes with these ids, for `left` rows at most.
pub(super) fn each_path(
    conn: &Connection,
    ids: &[RangeInclusive<i64>],
    left: &mut u64,
    each: &mut dyn FnMut(&str, Vec<u8>),
) -> Result<()> {
    let mut changes = conn.prepare_cached(
        "SELECT procedure, path FROM acetate_op
         WHERE id BETWEEN ?1 AND ?2 AND procedure NOT IN ('REFUSE', 'RESTORE') LIMIT ?3",
    )?;
    for ids in ids {
        let mut rows = changes.query(params![ids.start(), ids.end(), left.cast_signed()])?;
        while let Some(row) = rows.next()? {
            *left = left.saturating_sub(1);
            each(row.get_ref(0)?.as_str().unwrap_or_default(), value::bytes(row, 1)?.to_vec());
        }
    }
    Ok(())
}
