//! What the audit log says of the way back to a checkpoint.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension};

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::restore_rows::{DifferingSide, RestoreRows};
use crate::delta::sqlite::table::{schema, value};
use crate::delta::{Checkpoint, Result};
use crate::vfs::Time;

/// The most rows that are read to say what a restore changes.
pub(super) const MAX_ROWS: u64 = 1 << 20;

/// What a restore of a checkpoint takes back, by the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepsBack {
    /// The last restore that is taken back.
    pub restored: Option<RestoreTakenBack>,
    /// Paths at which changes were discarded.
    pub discarded: HashSet<Vec<u8>>,
    /// Paths with other changes.
    pub changed: HashSet<Vec<u8>>,
}

/// A restore that is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreTakenBack {
    /// How the log calls the checkpoint.
    pub checkpoint: String,
    /// The paths that were restored; the root for the whole tree.
    pub paths: HashSet<Vec<u8>>,
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
        rows.each_change(&snapshot, DifferingSide::OnlyFirst, &mut left, &mut |change| {
            match change.procedure {
                _ if change.is_brought_back => false,
                "DISCARD" => steps.discarded.insert(change.path.to_vec()),
                // The row of a directory that a restore of paths brought back alone.
                "RESTORE" => false,
                _ => steps.changed.insert(change.path.to_vec()),
            };
        })?;
        steps.restored = last_restore(&snapshot, &rows.restores())?;
        Ok(steps)
    }
}

/// The newest restore among `rows` (newest first). Its rows, one for each path, have the same note
/// and time.
fn last_restore(conn: &Connection, rows: &[i64]) -> Result<Option<RestoreTakenBack>> {
    let mut read = conn.prepare_cached(
        "SELECT ifnull(note, ''), path, time, time_nsec FROM acetate_op WHERE id = ?1",
    )?;
    let mut last: Option<(RestoreTakenBack, Time)> = None;
    for id in rows {
        let row = read
            .query_row([id], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    value::bytes(row, 1)?.to_vec(),
                    value::time(row, 2, 3)?,
                ))
            })
            .optional()?;
        let Some((checkpoint, path, time)) = row else { break };
        match &mut last {
            None => {
                let paths = HashSet::from([path]);
                last = Some((RestoreTakenBack { checkpoint, paths }, time));
            }
            Some((last, at)) if last.checkpoint == checkpoint && *at == time => {
                last.paths.insert(path);
            }
            Some(_) => break,
        }
    }
    Ok(last.map(|(last, _)| last))
}
