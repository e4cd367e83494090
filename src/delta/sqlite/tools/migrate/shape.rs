//! The form of a table in a file, for comparison with acetate's form.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension};

use crate::delta::Result;

/// The properties in which two tables of one name may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// In table order.
    pub columns: Vec<Column>,
    /// Whether numbers are never reused (AUTOINCREMENT).
    pub keeps_numbers: bool,
    /// Whether the table has rowids.
    pub has_rowid: bool,
    /// The sets of columns with a UNIQUE constraint.
    unique: BTreeSet<Vec<String>>,
    /// Whether it has foreign keys, CHECK constraints or STRICT, which acetate's tables do not
    /// have.
    has_more: bool,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Lower case.
    pub name: String,
    /// The declared type, in upper case.
    pub kind: String,
    pub not_null: bool,
    /// The DEFAULT expression, as SQL.
    pub default: Option<String>,
    /// Position in the primary key, from 1; 0 if not part of it.
    pub key: i64,
    /// Whether it is a generated column.
    pub is_generated: bool,
}

impl Column {
    /// The value for a row of an old form that lacks the column, as SQL.
    pub fn filler(&self) -> String {
        match (&self.default, self.not_null, self.kind.as_str()) {
            (Some(default), _, _) => format!("({default})"),
            (None, false, _) => "NULL".to_owned(),
            (None, true, "TEXT") => "''".to_owned(),
            (None, true, "BLOB") => "x''".to_owned(),
            (None, true, _) => "0".to_owned(),
        }
    }
}

impl Shape {
    /// The form of a table in the file; `None` if there is no such table.
    pub(super) fn read(conn: &Connection, table: &str) -> Result<Option<Self>> {
        let query = "SELECT upper(sql) FROM main.sqlite_master
            WHERE type = 'table' AND lower(name) = ?1";
        let sql: Option<String> = conn.query_row(query, [table], |row| row.get(0)).optional()?;
        let Some(sql) = sql else { return Ok(None) };
        let query = "SELECT wr, strict FROM pragma_table_list(?1) WHERE schema = 'main'";
        let (no_rowid, is_strict): (bool, bool) =
            conn.query_row(query, [table], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let query = "SELECT 1 FROM pragma_foreign_key_list(?1, 'main')";
        let has_keys = conn.prepare(query)?.exists([table])?;
        let words = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let has_checks = words.clone().any(|word| word == "CHECK");
        Ok(Some(Self {
            columns: columns(conn, table)?,
            keeps_numbers: words.clone().any(|word| word == "AUTOINCREMENT"),
            has_rowid: !no_rowid,
            unique: unique(conn, table)?,
            has_more: has_keys || has_checks || is_strict,
        }))
    }

    /// The form that a column definition of acetate's gives.
    pub(super) fn wanted(table: &str, columns: &str) -> Result<Self> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch(&format!("CREATE TABLE {table} {columns}"))?;
        Self::read(&conn, table)?.ok_or_else(|| {
            crate::delta::StoreError::corrupt(format!("no table {table} after it was made"))
        })
    }

    /// Whether the table has the column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c.name == column)
    }

    /// Whether a key or constraint makes the combination of these columns unique.
    pub(super) fn is_unique(&self, columns: &[&str]) -> bool {
        let mut key: Vec<&Column> = self.columns.iter().filter(|c| c.key > 0).collect();
        key.sort_by_key(|column| column.key);
        let is_same = |names: Vec<&str>| {
            names.iter().copied().collect::<BTreeSet<_>>() == columns.iter().copied().collect()
        };
        is_same(key.iter().map(|column| column.name.as_str()).collect())
            || self.unique.iter().any(|set| is_same(set.iter().map(String::as_str).collect()))
    }

    /// The columns that `wanted` lacks. They are another program's, and a rebuild keeps them.
    pub(super) fn extra(&self, wanted: &Self) -> Vec<&Column> {
        self.columns.iter().filter(|c| !wanted.has(&c.name) && !c.is_generated).collect()
    }

    /// Whether a table of this form can be used as one of the form `wanted`.
    pub(super) fn is_as(&self, wanted: &Self) -> bool {
        let Some((first, rest)) = self.columns.split_at_checked(wanted.columns.len()) else {
            return false;
        };
        let rest_may_be_left_out = rest
            .iter()
            .all(|column| !column.is_generated && (!column.not_null || column.default.is_some()));
        first == wanted.columns
            && rest_may_be_left_out
            && Self { columns: Vec::new(), ..self.clone() }
                == Self { columns: Vec::new(), ..wanted.clone() }
    }
}

fn columns(conn: &Connection, table: &str) -> Result<Vec<Column>> {
    let mut statement = conn.prepare(
        "SELECT lower(name), upper(type), \"notnull\", dflt_value, pk, hidden
         FROM pragma_table_xinfo(?1, 'main') ORDER BY cid",
    )?;
    let columns = statement.query_map([table], |row| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            not_null: row.get(2)?,
            default: row.get(3)?,
            key: row.get(4)?,
            is_generated: row.get::<_, i64>(5)? != 0,
        })
    })?;
    Ok(columns.collect::<rusqlite::Result<_>>()?)
}

fn unique(conn: &Connection, table: &str) -> Result<BTreeSet<Vec<String>>> {
    let mut statement =
        conn.prepare("SELECT name FROM pragma_index_list(?1, 'main') WHERE origin = 'u'")?;
    let indexes = statement.query_map([table], |row| row.get::<_, String>(0))?;
    let indexes: Vec<_> = indexes.collect::<rusqlite::Result<_>>()?;
    let mut sets = BTreeSet::new();
    let query = "SELECT lower(name) FROM pragma_index_info(?1, 'main') ORDER BY seqno";
    let mut statement = conn.prepare(query)?;
    for index in indexes {
        let names = statement.query_map([index], |row| row.get(0))?;
        sets.insert(names.collect::<rusqlite::Result<_>>()?);
    }
    Ok(sets)
}
