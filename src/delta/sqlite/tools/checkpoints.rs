//! Lists checkpoints with what changed between them.

use std::collections::HashSet;

use rusqlite::Connection;

use super::steps_back::MAX_ROWS;
use crate::delta::sqlite::file::connect::companion_path;
use crate::delta::sqlite::file::disk;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::applies_since::AppliesSince;
use crate::delta::sqlite::table::restore_rows::{DifferingSide, RestoreRows};
use crate::delta::sqlite::table::{
    checkpoint, checkpoint_keep, checkpoint_space, old_rows, schema, tree_sum,
};
use crate::delta::{
    ChangedRows, Checkpoint, CheckpointId, CheckpointKeep, CheckpointSpace, Incomplete, Result,
};

/// What stays free besides, in bytes: the disk's reserve for deleting, and the tables of a first
/// checkpoint.
const SPARE_BYTES: u64 = 8 << 20;

/// A checkpoint, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// How many paths changed since the checkpoint before it, or since the beginning of the log, as
    /// far as the audit log has them. What a restore took back in between counts as unchanged.
    pub changed_paths: u64,
    /// How often the session's changes were applied to the base since; `None` if the log does not
    /// have all rows since.
    pub applies: Option<u64>,
    /// How many rows are saved for it.
    pub saved_rows: u64,
    /// The size of saved content, in bytes.
    pub saved_bytes: u64,
}

/// The checkpoints, the oldest first; incomplete as they would be if the session were opened.
fn all(conn: &Connection) -> Result<Vec<Checkpoint>> {
    let mut all = checkpoint::all(conn)?;
    if tree_sum::is_foreign(conn)? {
        for one in &mut all {
            one.incomplete.get_or_insert(Incomplete::OtherProgram);
        }
    }
    Ok(all)
}

impl Session {
    /// The checkpoints, the oldest first.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        all(&open_read_only(&self.path)?)
    }

    /// A checkpoint.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        let all = self.checkpoints()?;
        Ok(all.into_iter().find(|one| one.id == id))
    }

    /// The automatic checkpoints that the session keeps.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoint_keep(&self) -> Result<CheckpointKeep> {
        checkpoint_keep::get(&open_read_only(&self.path)?)
    }

    /// What the checkpoints take; `None` without any.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoint_space(&self) -> Result<Option<CheckpointSpace>> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        let is_foreign = tree_sum::is_foreign(&snapshot)?;
        let space = checkpoint_space::get(&snapshot)?;
        Ok(space.map(|space| match is_foreign {
            true => CheckpointSpace { incomplete: space.checkpoints, ..space },
            false => space,
        }))
    }

    /// Stores which automatic checkpoints the session keeps. Call before the writer is opened.
    ///
    /// # Errors
    /// As [`Session::record_base`].
    pub fn record_checkpoint_keep(&mut self, keep: CheckpointKeep) -> Result<()> {
        self.before_writer(|conn| match checkpoint_keep::get(conn)? == keep {
            true => Ok(()),
            false => checkpoint_keep::put(conn, keep),
        })
    }

    /// The most content that the session can hold, in bytes: the size of its file and WAL.
    pub fn content_bound(&self) -> u64 {
        let wal = companion_path(&self.path, "-wal");
        disk::byte_len(&self.path).saturating_add(disk::byte_len(&wal))
    }

    /// Whether the disk has room to keep this much content of the session for a checkpoint, which
    /// goes through the WAL.
    pub fn has_room_to_keep(&self, bytes: u64) -> bool {
        let needed = bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
        disk::usage(&self.path).is_ok_and(|disk| disk.available_bytes >= needed)
    }

    /// Whether anything changed after a row of the audit log.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn is_changed_since(&self, last_op: i64) -> Result<bool> {
        checkpoint::is_changed_since(&open_read_only(&self.path)?, last_op)
    }

    /// How often the session's changes were applied to the base after a checkpoint; `None` if the
    /// log does not have all rows since.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn applies_since(&self, checkpoint: &Checkpoint) -> Result<Option<u64>> {
        let conn = open_read_only(&self.path)?;
        Ok(AppliesSince::load(&conn, checkpoint.last_op)?.since(checkpoint.last_op))
    }

    /// Where rows of the tree changed after the checkpoint `from`, and before `until` or now.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn changed_rows(
        &self,
        from: &Checkpoint,
        until: Option<&Checkpoint>,
    ) -> Result<ChangedRows> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        old_rows::changed(&snapshot, from, until)
    }

    /// All rows of the tree: where it can differ from another one over the same base.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn tree_rows(&self) -> Result<ChangedRows> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        old_rows::all(&snapshot)
    }

    /// The checkpoints, the oldest first, with what is known of them. Reads the audit log.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn list_checkpoints(&self) -> Result<Vec<ListedCheckpoint>> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        let all = all(&snapshot)?;
        let restores = RestoreRows::load(&snapshot)?;
        let has_log = schema::has_table(&snapshot, "acetate_op")?;
        let oldest = all.first().map_or(0, |oldest| oldest.last_op);
        let applies = AppliesSince::load(&snapshot, oldest)?;
        let (mut listed, mut since, mut left) = (Vec::new(), 0, MAX_ROWS);
        for checkpoint in all {
            let mut paths = HashSet::new();
            let rows = restores.differing(since, checkpoint.last_op);
            for side in [DifferingSide::OnlyFirst, DifferingSide::OnlySecond] {
                if has_log {
                    rows.each_change(&snapshot, side, &mut left, &mut |change| {
                        paths.insert(change.path.to_vec());
                    })?;
                }
            }
            since = checkpoint.last_op;
            let saved =
                checkpoint.saved.map_or_else(|| old_rows::count(&snapshot, checkpoint.id), Ok);
            let (saved_rows, saved_bytes) = saved?;
            let (changed_paths, applies) = (paths.len() as u64, applies.since(since));
            let one =
                ListedCheckpoint { checkpoint, changed_paths, applies, saved_rows, saved_bytes };
            listed.push(one);
        }
        Ok(listed)
    }
}
