//! What the writer of a replica has changed.

use super::writer::SqliteWriter;
use crate::delta::Result;
use crate::delta::sqlite::table::replica::{BatchMark, NotedRows, put_mark};

impl SqliteWriter {
    /// Whether rows were changed that the other store lacks.
    pub fn has_noted(&self) -> bool {
        self.batch.row_notes.as_ref().is_some_and(|notes| !notes.is_empty())
    }

    /// The rows that were changed since [`NotedRows::forget`], as they are in the open batch.
    pub fn noted(&mut self) -> Result<NotedRows> {
        let notes = self.batch.row_notes.clone().unwrap_or_default();
        notes.add_sequences(&self.batch.conn)?;
        notes.read(&self.batch.conn)
    }

    /// Records which batch of the other store the open batch is.
    pub fn put_mark(&self, mark: BatchMark) -> Result<()> {
        put_mark(&self.batch.conn, Some(mark))
    }
}
