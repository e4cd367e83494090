//! Transactions of the writer itself, which are synced.

use rusqlite::Connection;

use super::writer::SqliteWriter;
use crate::delta::Result;
use crate::delta::sqlite::table::{inode_numbers, meta, replica, tree_sum};

impl SqliteWriter {
    /// Runs `work` in a transaction of its own that is synced at commit.
    pub(super) fn in_synced(&mut self, work: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        self.take_over_wal()?;
        self.set_full(true)?;
        self.run("BEGIN IMMEDIATE")?;
        let done = work(&self.batch.conn).and_then(|()| self.run_commit());
        if done.is_err() {
            self.undo();
            return done;
        }
        self.wal.note_length(&self.batch.conn);
        self.note_sync();
        Ok(())
    }

    /// Marks the session as not clean and reserves inode numbers, in a synced transaction before
    /// the first change. A session that is only read stays the same to the byte. Repeated when the
    /// reserved numbers run out. If the mark were in an unsynced batch, a power loss could undo it,
    /// and the next run would allocate the batch's numbers again.
    pub(super) fn begin_writing(&mut self) -> Result<()> {
        let mark = self.batch.numbers.due();
        let boot_id = self.boot_id.clone().unwrap_or_default();
        self.in_synced(|conn| {
            meta::put(conn, meta::CLEAN, 0)?;
            // Until the first batch, another store lacks the numbers; without notes, it lacks all
            // that follows.
            replica::put_mark(conn, None)?;
            tree_sum::forget(conn)?;
            meta::put(conn, meta::BOOT_ID, boot_id)?;
            mark.map_or(Ok(()), |mark| inode_numbers::put_mark(conn, mark))
        })?;
        self.clean = false;
        if let Some(mark) = mark {
            self.batch.numbers.marked(mark);
        }
        Ok(())
    }
}
