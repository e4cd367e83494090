//! Which rows a writing connection has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::tables::session_tables;
use crate::delta::Result;

/// The rows that a connection has changed since they were last taken. A rolled back change leaves
/// its note: the row is then sent as it is.
///
/// SQLite reports no incremental write of a BLOB (`RowNotes::add` notes its row) and no change of
/// `sqlite_sequence` (`RowNotes::add_sequences`). Nor does it report a `DELETE` without `WHERE`, or
/// a row that `REPLACE` deletes: a test forbids these.
#[derive(Debug, Clone, Default)]
pub struct RowNotes {
    /// The index of the table in [`session_tables`], and the row id.
    rows: Arc<Mutex<BTreeSet<(usize, i64)>>>,
    /// The high-water marks of AUTOINCREMENT that were noted last, by row: SQLite reports no change
    /// of them.
    marks: Arc<Mutex<HashMap<i64, i64>>>,
}

impl RowNotes {
    /// Notes what `conn` changes from now on.
    pub(in crate::delta::sqlite) fn watch(&self, conn: &mut Connection) -> Result<()> {
        let rows = Arc::clone(&self.rows);
        let tables: HashMap<&str, usize> = session_tables()
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.is_outside)
            .map(|(at, it)| (it.name.as_str(), at))
            .collect();
        conn.update_hook(Some(move |_, database: &str, table: &str, row: i64| {
            if database == "main"
                && let Some(at) = tables.get(table)
            {
                rows.lock().insert((*at, row));
            }
        }))?;
        Ok(())
    }

    /// Whether there are none.
    pub(in crate::delta::sqlite) fn is_empty(&self) -> bool {
        self.rows.lock().is_empty()
    }

    /// Notes a row of a table by its name.
    pub(in crate::delta::sqlite) fn add(&self, table: &str, row: i64) {
        if let Some(at) = session_tables().iter().position(|it| it.name == table) {
            self.rows.lock().insert((at, row));
        }
    }

    /// Notes the high-water marks that have changed.
    pub(in crate::delta::sqlite) fn add_sequences(&self, conn: &Connection) -> Result<()> {
        let mut statement = conn.prepare_cached("SELECT rowid, seq FROM main.sqlite_sequence")?;
        let mut found = statement.query([])?;
        let mut marks = self.marks.lock();
        while let Some(row) = found.next()? {
            let (row, mark) = (row.get(0)?, row.get(1)?);
            if marks.insert(row, mark) != Some(mark) {
                self.add("sqlite_sequence", row);
            }
        }
        Ok(())
    }

    /// The noted rows, by table.
    pub(super) fn all(&self) -> BTreeSet<(usize, i64)> {
        self.rows.lock().clone()
    }

    /// Forgets these notes.
    pub(super) fn forget(&self, rows: &BTreeSet<(usize, i64)>) {
        self.rows.lock().retain(|row| !rows.contains(row));
    }
}
