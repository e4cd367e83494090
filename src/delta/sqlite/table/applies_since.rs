//! How often a session's changes were applied to the base since a moment of the audit log.
//!
//! An apply has a row for each path. Those of one request have one time, and a large apply sends
//! several. A checkpoint of its own, before the first, says which rows belong together.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::delta::{BEFORE_APPLY, Checkpoint, CheckpointId, CheckpointKind, Result};
use crate::vfs::Time;

use super::{checkpoint, schema, value};

/// The applies of a session after a row of the log. A later restore does not take one back.
#[derive(Debug, Default)]
pub struct AppliesSince {
    /// The first row of each, by id; an apply without a checkpoint of its own may count as several.
    applies: Vec<i64>,
    /// The id of the first row that the log still has.
    first: i64,
}

/// What the rows of one apply have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ApplyKey {
    /// The checkpoint that was made for it.
    Own(CheckpointId),
    /// The time.
    At(Time),
}

impl AppliesSince {
    /// Reads those after the row `after`.
    pub fn load(conn: &Connection, after: i64) -> Result<Self> {
        if !checkpoint::is_used(conn)? || !schema::has_table(conn, "acetate_op")? {
            return Ok(Self::default());
        }
        let all = checkpoint::all(conn)?;
        let first = "SELECT ifnull(min(id), 0) FROM acetate_op";
        let first = conn.prepare_cached(first)?.query_row([], |row| row.get(0))?;
        let mut applied = conn.prepare_cached(
            "SELECT id, time, time_nsec FROM acetate_op
             WHERE id > ?1 AND procedure = 'APPLY' ORDER BY id",
        )?;
        let mut rows = applied.query([after])?;
        let (mut applies, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            let newer = all.partition_point(|one| one.last_op < id);
            let newest = newer.checked_sub(1).map(|at| &all[at]);
            let key = match newest.filter(|one| is_of_apply(one)) {
                Some(own) => ApplyKey::Own(own.id),
                None => ApplyKey::At(value::time(row, 1, 2)?),
            };
            if seen.insert(key) {
                applies.push(id);
            }
        }
        Ok(Self { applies, first })
    }

    /// How many there were after the row `last_op`; `None` if rows since were deleted.
    pub fn since(&self, last_op: i64) -> Option<u64> {
        let is_cut = self.first > last_op + 1;
        let before = self.applies.partition_point(|id| *id <= last_op);
        (!is_cut).then_some((self.applies.len() - before) as u64)
    }
}

/// Whether a checkpoint was made for an apply.
fn is_of_apply(checkpoint: &Checkpoint) -> bool {
    let before = checkpoint.labels.get("before").map(String::as_str);
    checkpoint.kind == CheckpointKind::Safety && before == Some(BEFORE_APPLY)
}
