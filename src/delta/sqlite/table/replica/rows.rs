//! Rows of whole tables, read from a session file and written to one.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use super::cells::CellColumn;
use super::notes::RowNotes;
use super::tables::{ALL, SessionTable, session_tables};
use crate::delta::sqlite::table::schema;
use crate::delta::{Result, StoreError};

/// The table with the high-water marks of AUTOINCREMENT.
const SEQUENCES: &str = "sqlite_sequence";

/// Some rows of one table.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// The table.
    pub table: &'static SessionTable,
    /// The row ids of the rows that are there.
    pub ids: Vec<i64>,
    /// Their values, one entry for each column of the table.
    pub columns: Vec<CellColumn>,
    /// The row ids of rows that are gone.
    pub gone: Vec<i64>,
    /// Bytes that the values take, roughly.
    pub bytes: usize,
}

impl TableRows {
    /// No rows.
    pub fn new(table: &'static SessionTable) -> Self {
        let columns = table.columns.iter().map(|column| CellColumn::new(column.kind)).collect();
        Self { table, ids: Vec::new(), columns, gone: Vec::new(), bytes: 0 }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.gone.is_empty()
    }

    /// Appends a row: its id, and then its columns.
    fn push(&mut self, row: &Row<'_>) -> Result<()> {
        for (at, (values, column)) in self.columns.iter_mut().zip(&self.table.columns).enumerate() {
            self.bytes += values.push(column.kind, row.get_ref(at + 1)?)?;
        }
        self.ids.push(row.get(0)?);
        Ok(())
    }
}

impl SessionTable {
    fn names(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.join(", ")
    }

    /// Reads the rows after the row `after`, in the order of their ids, up to about `most` bytes.
    pub(in crate::delta::sqlite) fn read_after(
        &'static self,
        conn: &Connection,
        after: i64,
        most: usize,
    ) -> Result<TableRows> {
        let mut rows = TableRows::new(self);
        if self.is_late && !schema::has_table(conn, &self.name)? {
            return Ok(rows);
        }
        let (name, names, shared) = (&self.name, self.names(), self.is_shared());
        let mut statement = conn.prepare_cached(&format!(
            "SELECT rowid, {names} FROM main.{name} WHERE rowid > ?1 AND {shared} ORDER BY rowid"
        ))?;
        let mut found = statement.query([after])?;
        while rows.bytes < most
            && let Some(row) = found.next()?
        {
            rows.push(row)?;
        }
        Ok(rows)
    }

    /// Reads rows by their ids; those that are gone are in [`TableRows::gone`].
    fn read(&'static self, conn: &Connection, ids: impl Iterator<Item = i64>) -> Result<TableRows> {
        let mut rows = TableRows::new(self);
        if self.is_late && !schema::has_table(conn, &self.name)? {
            // It was made in what was rolled back.
            rows.gone.extend(ids);
            return Ok(rows);
        }
        let (name, names, shared) = (&self.name, self.names(), self.is_shared());
        let mut statement = conn.prepare_cached(&format!(
            "SELECT rowid, {names}, {shared} FROM main.{name} WHERE rowid = ?1"
        ))?;
        let of_session = self.columns.len() + 1;
        for id in ids {
            let found = statement
                .query_row([id], |row| Ok(row.get::<_, bool>(of_session)?.then(|| rows.push(row))));
            match found.optional()? {
                Some(pushed) => pushed.unwrap_or(Ok(()))?,
                None => rows.gone.push(id),
            }
        }
        Ok(rows)
    }

    /// Deletes the session's rows with these ids, and gives other ones that have them new ids.
    pub(in crate::delta::sqlite) fn delete(
        &self,
        conn: &Connection,
        ids: &BTreeSet<i64>,
    ) -> Result<()> {
        if self.is_late && !schema::has_table(conn, &self.name)? {
            return Ok(());
        }
        let (name, shared) = (&self.name, self.is_shared());
        let delete = format!("DELETE FROM main.{name} WHERE rowid = ?1 AND {shared}");
        let mut delete = conn.prepare_cached(&delete)?;
        let renumber = format!(
            "UPDATE main.{name} SET rowid = (SELECT max(rowid) FROM main.{name}) + ?2 WHERE rowid \
             = ?1"
        );
        let is_all = shared == ALL;
        // Beyond all of them: the loop would delete a row with an id that is still to come.
        let beyond = ids.last().copied().unwrap_or_default().max(0) + 1;
        for id in ids {
            delete.execute([id])?;
            if !is_all {
                conn.prepare_cached(&renumber)?.execute([*id, beyond])?;
            }
        }
        Ok(())
    }

    /// Removes rows that SQLite made itself, where `rows`, all of a table, are to be written: the
    /// high-water marks of the tables that got rows.
    pub(in crate::delta::sqlite) fn make_place(conn: &Connection, rows: &TableRows) -> Result<()> {
        let table = rows.table;
        if table.name != SEQUENCES {
            return Ok(());
        }
        let text = format!("DELETE FROM main.{SEQUENCES} WHERE {}", table.is_shared());
        conn.execute(&text, [])?;
        table.delete(conn, &rows.ids.iter().copied().collect())
    }

    /// Writes rows that are not there yet.
    pub(in crate::delta::sqlite) fn insert(conn: &Connection, rows: &TableRows) -> Result<()> {
        let table = rows.table;
        if rows.ids.is_empty() {
            return Ok(());
        }
        if table.is_late && !schema::has_table(conn, &table.name)? {
            table.create(conn)?;
        }
        let (name, names) = (&table.name, table.names());
        let has_key = table.key.is_some();
        let (row_id, place) = if has_key { ("", "") } else { ("rowid, ", "?, ") };
        let places = vec!["?"; table.columns.len()].join(", ");
        let mut statement = conn.prepare_cached(&format!(
            "INSERT INTO main.{name} ({row_id}{names}) VALUES ({place}{places})"
        ))?;
        for (at, id) in rows.ids.iter().enumerate() {
            let mut values = Vec::with_capacity(table.columns.len() + 1);
            if !has_key {
                values.push(rusqlite::types::ToSqlOutput::from(*id));
            }
            for (column, cells) in table.columns.iter().zip(&rows.columns) {
                values.push(cells.get(column.kind, at)?);
            }
            statement.execute(params_from_iter(values))?;
        }
        Ok(())
    }
}

impl RowNotes {
    /// Reads the noted rows, in the open transaction. [`NotedRows::forget`] when they are kept.
    pub(in crate::delta::sqlite) fn read(&self, conn: &Connection) -> Result<NotedRows> {
        let noted = self.all();
        let mut tables: Vec<TableRows> = Vec::new();
        let mut rest = noted.iter().peekable();
        while let Some((at, _)) = rest.peek() {
            let at = *at;
            let table = session_tables().get(at).ok_or_else(|| StoreError::io("no such table"))?;
            let mut ids = Vec::new();
            while let Some((_, id)) = rest.next_if(|(other, _)| *other == at) {
                ids.push(*id);
            }
            tables.push(table.read(conn, ids.into_iter())?);
        }
        tables.retain(|rows| !rows.is_empty());
        Ok(NotedRows { tables, noted, notes: self.clone() })
    }
}

/// Rows that a batch has changed.
pub struct NotedRows {
    /// The rows, by table.
    pub tables: Vec<TableRows>,
    noted: BTreeSet<(usize, i64)>,
    notes: RowNotes,
}

impl NotedRows {
    /// They are kept: the next batch need not send them.
    pub fn forget(&self) {
        self.notes.forget(&self.noted);
    }
}
