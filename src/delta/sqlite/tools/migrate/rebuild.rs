//! Writes a table anew in the form that acetate gives it, with the rows that it has.

use rusqlite::{Connection, OptionalExtension};

use crate::delta::Result;
use crate::delta::sqlite::table::{dentry_ids, schema};

use super::shape::{Column, Shape};

/// A table that is not as acetate makes it.
pub(super) struct Odd {
    pub table: &'static str,
    /// Its columns, as SQL.
    ddl: &'static str,
    pub now: Shape,
    pub wanted: Shape,
}

impl Odd {
    /// Compares a table of the file; `None` where it is as it should be, or is not there.
    pub(super) fn find(
        conn: &Connection,
        (table, ddl): (&'static str, &'static str),
    ) -> Result<Option<Self>> {
        let Some(now) = Shape::read(conn, table)? else { return Ok(None) };
        let wanted = Shape::wanted(table, ddl)?;
        Ok((!now.is_as(&wanted)).then_some(Self { table, ddl, now, wanted }))
    }

    /// What will be done to it, in words.
    pub(super) fn words(&self) -> String {
        let missing = self.wanted.columns.iter().filter(|column| !self.now.has(&column.name));
        let missing: Vec<&str> = missing.map(|column| column.name.as_str()).collect();
        if !missing.is_empty() {
            format!("gets {}", missing.join(", "))
        } else if self.wanted.keeps_numbers && !self.now.keeps_numbers {
            "is written anew, so that no number is given out twice".to_owned()
        } else {
            "is written anew in acetate's form".to_owned()
        }
    }

    /// The name of the table's old form while the new one is filled.
    pub(super) fn old_name(&self) -> String {
        format!("{}_before_migrate", self.table)
    }

    /// A query for the rows of `table`, which has the old form, in the new one.
    pub(super) fn select(&self, table: &str) -> String {
        let columns = self.wanted.columns.iter();
        let columns = columns.map(|c| format!("{} AS {}", self.expression(c), c.name));
        let extra = self.now.extra(&self.wanted).into_iter().map(|column| quoted(&column.name));
        let columns: Vec<_> = columns.chain(extra).collect();
        let order = if self.now.has_rowid { " ORDER BY rowid" } else { "" };
        format!("SELECT {} FROM {table}{order}", columns.join(", "))
    }

    /// A column's value, from a row of the old form.
    fn expression(&self, column: &Column) -> String {
        let name = column.name.as_str();
        match (self.table, name, self.now.has(name)) {
            // Without that, of two entries of one name nobody would see the second.
            ("fs_dentry", "name", true) if !self.now.is_unique(&["parent_ino", "name"]) => {
                "iif(row_number() OVER (PARTITION BY parent_ino, name ORDER BY rowid) > 1, \
                 name || '~' || rowid, ifnull(name, ''))"
                    .to_owned()
            }
            (_, _, true) if column.not_null && column.key == 0 => {
                format!("ifnull({name}, {})", column.filler())
            }
            (_, _, true) => name.to_owned(),
            ("fs_dentry", "id", false) if self.now.has_rowid => "rowid".to_owned(),
            // A call is recorded when it has ended (specification, "Record Tool Call").
            ("tool_calls", "status", false) => {
                "iif(error IS NOT NULL, 'error', 'success')".to_owned()
            }
            _ => column.filler(),
        }
    }

    /// Puts the old form aside, under another name, and makes the new one, empty.
    pub(super) fn put_aside(&self, conn: &Connection) -> Result<()> {
        let (table, old) = (self.table, self.old_name());
        conn.execute_batch(&format!(
            "ALTER TABLE {table} RENAME TO {old}; CREATE TABLE {table} {}",
            self.ddl
        ))?;
        for column in self.now.extra(&self.wanted) {
            let (name, kind) = (quoted(&column.name), quoted(&column.kind));
            conn.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {name} {kind}"))?;
        }
        Ok(())
    }

    /// Writes the table anew: its old rows in the new form, and other programs' indexes.
    pub(super) fn rebuild(
        &self,
        conn: &Connection,
        fill: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<()> {
        let indexes = indexes(conn, self.table)?;
        let reached = reached(conn, self.table)?;
        self.put_aside(conn)?;
        fill(conn)?;
        conn.execute_batch(&format!("DROP TABLE {}", self.old_name()))?;
        if let Some(reached) = reached {
            dentry_ids::raise(conn, self.table, reached)?;
        }
        for index in indexes {
            // One of a column that is gone is of no use; acetate's own are made anew later.
            let _made = conn.execute_batch(&index);
        }
        Ok(())
    }

    /// Fills the new form with the old one's rows.
    pub(super) fn fill(&self, conn: &Connection) -> Result<()> {
        let columns = self.wanted.columns.iter().map(|column| column.name.clone());
        let extra = self.now.extra(&self.wanted).into_iter().map(|column| quoted(&column.name));
        let columns: Vec<_> = columns.chain(extra).collect();
        let rows = self.select(&self.old_name());
        conn.execute(&format!("INSERT INTO {} ({}) {rows}", self.table, columns.join(", ")), [])?;
        Ok(())
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The indexes that somebody made, as SQL.
fn indexes(conn: &Connection, table: &str) -> Result<Vec<String>> {
    let mut statement = conn.prepare(
        "SELECT sql FROM main.sqlite_master
         WHERE type = 'index' AND lower(tbl_name) = ?1 AND sql IS NOT NULL",
    )?;
    let found = statement.query_map([table], |row| row.get(0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// The largest number that the table ever gave out, where it keeps that.
fn reached(conn: &Connection, table: &str) -> Result<Option<i64>> {
    if !schema::has_table(conn, "sqlite_sequence")? {
        return Ok(None);
    }
    let query = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
    Ok(conn.query_row(query, [table], |row| row.get(0)).optional()?)
}
