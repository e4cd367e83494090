//! Rebuilds a table in acetate's form, keeping its rows.

use rusqlite::{Connection, OptionalExtension};

use crate::delta::Result;
use crate::delta::sqlite::table::{dentry_ids, schema};

use super::shape::{Column, Shape};

/// A table that differs from acetate's form.
pub(super) struct OutdatedTable {
    pub table: &'static str,
    /// The column definitions of acetate's form, as SQL.
    ddl: &'static str,
    pub now: Shape,
    pub wanted: Shape,
}

impl OutdatedTable {
    /// Compares a table of the file; `None` if it has acetate's form or does not exist.
    pub(super) fn find(
        conn: &Connection,
        (table, ddl): (&'static str, &'static str),
    ) -> Result<Option<Self>> {
        let Some(now) = Shape::read(conn, table)? else { return Ok(None) };
        let wanted = Shape::wanted(table, ddl)?;
        Ok((!now.is_as(&wanted)).then_some(Self { table, ddl, now, wanted }))
    }

    /// A description of the change.
    pub(super) fn words(&self) -> String {
        let missing = self.wanted.columns.iter().filter(|column| !self.now.has(&column.name));
        let missing: Vec<&str> = missing.map(|column| column.name.as_str()).collect();
        if !missing.is_empty() {
            format!("gets {}", missing.join(", "))
        } else if self.wanted.keeps_numbers && !self.now.keeps_numbers {
            "is rewritten, so that no number is given out twice".to_owned()
        } else {
            "is rewritten in acetate's form".to_owned()
        }
    }

    /// The old table's name while the new one is filled.
    pub(super) fn old_name(&self) -> String {
        format!("{}_before_migrate", self.table)
    }

    /// A query that returns the rows of `table`, which has the old form, in the new form.
    pub(super) fn select(&self, table: &str) -> String {
        let columns = self.wanted.columns.iter();
        let columns = columns.map(|c| format!("{} AS {}", self.expression(c), c.name));
        let extra = self.now.extra(&self.wanted).into_iter().map(|column| quoted(&column.name));
        let columns: Vec<_> = columns.chain(extra).collect();
        let order = if self.now.has_rowid { " ORDER BY rowid" } else { "" };
        format!("SELECT {} FROM {table}{order}", columns.join(", "))
    }

    /// An SQL expression for a column of the new form, from a row of the old form.
    fn expression(&self, column: &Column) -> String {
        let name = column.name.as_str();
        match (self.table, name, self.now.has(name)) {
            // Without the UNIQUE constraint, a second entry of the same name would be invisible:
            // rename it.
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
            // The specification records a call when it has ended ("Record Tool Call").
            ("tool_calls", "status", false) => {
                "iif(error IS NOT NULL, 'error', 'success')".to_owned()
            }
            _ => column.filler(),
        }
    }

    /// Renames the old table and creates an empty one in the new form.
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

    /// Rebuilds the table: its rows in the new form, its AUTOINCREMENT mark, and other programs'
    /// indexes.
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
            // Fails for an index on a column that is gone. acetate's own indexes are created later.
            let _made = conn.execute_batch(&index);
        }
        Ok(())
    }

    /// Copies the old table's rows into the new one.
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

/// The explicitly created indexes of the table, as SQL.
fn indexes(conn: &Connection, table: &str) -> Result<Vec<String>> {
    let mut statement = conn.prepare(
        "SELECT sql FROM main.sqlite_master
         WHERE type = 'index' AND lower(tbl_name) = ?1 AND sql IS NOT NULL",
    )?;
    let found = statement.query_map([table], |row| row.get(0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// The table's AUTOINCREMENT mark, if it has one.
fn reached(conn: &Connection, table: &str) -> Result<Option<i64>> {
    if !schema::has_table(conn, "sqlite_sequence")? {
        return Ok(None);
    }
    let query = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
    Ok(conn.query_row(query, [table], |row| row.get(0)).optional()?)
}
