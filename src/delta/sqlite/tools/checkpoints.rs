//! Lists checkpoints with what changed between them.

use std::collections::HashSet;

use rusqlite::params;

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::{checkpoint, checkpoint_keep, checkpoint_space, old_rows, value};
use crate::delta::{
    ChangedRows, Checkpoint, CheckpointId, CheckpointKeep, CheckpointSpace, Result,
};

/// A checkpoint, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// How many paths changed since the checkpoint before it, or since the beginning of the log, as
    /// far as the audit log has them.
    pub changed_paths: u64,
    /// How many rows are saved for it.
    pub saved_rows: u64,
    /// The size of saved content, in bytes.
    pub saved_bytes: u64,
}

impl Session {
    /// The checkpoints, the oldest first.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        checkpoint::all(&open_read_only(&self.path)?)
    }

    /// A checkpoint.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        checkpoint::get(&open_read_only(&self.path)?, id)
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
        checkpoint_space::get(&snapshot)
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
        checkpoint::applies_since(&open_read_only(&self.path)?, checkpoint.last_op)
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

    /// The checkpoints, the oldest first, with what is known of them. Reads the audit log.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn list_checkpoints(&self) -> Result<Vec<ListedCheckpoint>> {
        let conn = open_read_only(&self.path)?;
        let snapshot = conn.unchecked_transaction()?;
        let all = checkpoint::all(&snapshot)?;
        let mut ops = snapshot.prepare(
            "SELECT path FROM acetate_op WHERE id > ?1 AND id <= ?2 AND procedure <> 'REFUSE'",
        )?;
        let (mut listed, mut since) = (Vec::new(), 0);
        for checkpoint in all {
            let mut paths = HashSet::new();
            let mut rows = ops.query(params![since, checkpoint.last_op])?;
            while let Some(row) = rows.next()? {
                paths.insert(value::bytes(row, 0)?.to_vec());
            }
            since = checkpoint.last_op;
            let saved =
                checkpoint.saved.map_or_else(|| old_rows::count(&snapshot, checkpoint.id), Ok);
            let (saved_rows, saved_bytes) = saved?;
            let changed_paths = paths.len() as u64;
            listed.push(ListedCheckpoint { checkpoint, changed_paths, saved_rows, saved_bytes });
        }
        Ok(listed)
    }
}
