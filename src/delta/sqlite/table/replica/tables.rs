//! The tables whose rows make up a session.

use std::sync::LazyLock;

use rusqlite::Connection;

use super::cells::ColumnKind;
use crate::delta::Result;
use crate::delta::sqlite::table::{call_bounds, checkpoint, meta, past, schema};

/// The agent's tables: programs read and write them beside the server.
const OUTSIDE: [&str; 3] = ["kv_store", "tool_calls", "acetate_tool_call"];

/// Keys of `acetate_meta` that are about one file, and not about the session.
const LOCAL_META: [&str; 11] = [
    meta::CLEAN,
    meta::BOOT_ID,
    meta::EPOCH,
    meta::SYNCS,
    meta::LAST_DENTRY,
    meta::LATE_OP,
    meta::TREE_SUM,
    meta::MOVED_TO,
    meta::REPLICA_OF,
    meta::SEQ,
    meta::STAMP,
];

/// Columns that are declared as text and hold bytes: names and paths (invariant D5).
const BYTE_COLUMNS: [&str; 6] = ["name", "target", "path", "parent_path", "path2", "base_path"];

/// Tables in which columns of these names hold words.
const WORDS: [&str; 2] = ["acetate_checkpoint", "sqlite_sequence"];

/// The condition of [`SessionTable::is_shared`] that all rows meet.
pub(super) const ALL: &str = "1";

/// A table whose rows make up a session.
#[derive(Debug)]
pub struct SessionTable {
    /// Its name.
    pub name: String,
    /// Its columns, in their order.
    pub columns: Vec<SessionColumn>,
    /// The index of the column that is the row id; without one, rows have no number of their own.
    pub key: Option<usize>,
    /// Whether it exists from the first row on.
    pub(super) is_late: bool,
    /// Whether programs read and write it beside the server, so that no replica has its rows.
    pub is_outside: bool,
}

/// A column of a [`SessionTable`].
#[derive(Debug)]
pub struct SessionColumn {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// All of them, sorted by name.
pub fn session_tables() -> &'static [SessionTable] {
    static TABLES: LazyLock<Vec<SessionTable>> = LazyLock::new(|| {
        let read = || -> Result<Vec<SessionTable>> {
            let conn = Connection::open_in_memory()?;
            schema::complete(&conn)?;
            let early = names(&conn)?;
            create_late(&conn)?;
            call_bounds::create(&conn)?;
            let all = names(&conn)?.into_iter();
            all.map(|name| table(&conn, !early.contains(&name), name)).collect()
        };
        // Empty only if SQLite has no memory: then nothing else works either.
        read().unwrap_or_default()
    });
    &TABLES
}

/// Creates the tables that a session gets with its first checkpoint.
fn create_late(conn: &Connection) -> Result<()> {
    checkpoint::create_tables(conn)?;
    if !schema::has_table(conn, past::TABLE)? {
        past::create(conn)?;
    }
    Ok(())
}

fn names(conn: &Connection) -> Result<Vec<String>> {
    let mut statement =
        conn.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

fn table(conn: &Connection, is_late: bool, name: String) -> Result<SessionTable> {
    let mut statement = conn.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
    let rows = statement.query_map([&name], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    })?;
    let found: Vec<(String, String, i64)> = rows.collect::<rusqlite::Result<_>>()?;
    let is_single = found.iter().filter(|(_, _, pk)| *pk > 0).count() == 1;
    let is_row_id =
        |(_, kind, pk): &(String, String, i64)| *pk == 1 && is_single && kind == "INTEGER";
    let key = found.iter().position(is_row_id);
    let column = |(column, declared, _): (String, String, i64)| {
        let kind = kind(&name, &column, &declared);
        SessionColumn { name: column, kind }
    };
    let columns = found.into_iter().map(column).collect();
    let is_outside = OUTSIDE.contains(&name.as_str());
    Ok(SessionTable { name, columns, key, is_late, is_outside })
}

fn kind(table: &str, column: &str, declared: &str) -> ColumnKind {
    let is_bytes = BYTE_COLUMNS.contains(&column) && !WORDS.contains(&table);
    match declared {
        "INTEGER" => ColumnKind::Int,
        "BLOB" => ColumnKind::Blob,
        "TEXT" if is_bytes || table == "fs_overlay_config" && column == "value" => ColumnKind::Name,
        "TEXT" => ColumnKind::Text,
        _ if table == "sqlite_sequence" && column == "seq" => ColumnKind::Int,
        _ if table == "sqlite_sequence" => ColumnKind::Text,
        _ => ColumnKind::Any,
    }
}

impl SessionTable {
    /// Creates the table, if it is missing, with those that come with it.
    pub(super) fn create(&self, conn: &Connection) -> Result<()> {
        match self.name == call_bounds::NAME {
            // A session with bounds of calls may have no checkpoint.
            true => call_bounds::create(conn),
            false => create_late(conn),
        }
    }

    /// The condition under which a row is the session's, and not one of this file alone.
    pub(super) fn is_shared(&self) -> String {
        let quoted = |keys: &[&str]| {
            let quoted: Vec<_> = keys.iter().map(|key| format!("'{key}'")).collect();
            quoted.join(", ")
        };
        match self.name.as_str() {
            "acetate_meta" => {
                let secret = [meta::HANDLE_KEY];
                let local: Vec<_> = LOCAL_META.iter().chain(&secret).copied().collect();
                format!("key NOT IN ({})", quoted(&local))
            }
            "sqlite_sequence" => format!("name NOT IN ({})", quoted(&OUTSIDE)),
            _ => ALL.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_session_with_their_keys_and_columns() {
        let find = |name: &str| session_tables().iter().find(|table| table.name == name).unwrap();
        let inodes = find("fs_inode");
        assert_eq!((inodes.key, inodes.is_late), (Some(0), false));
        let kinds = |name: &str| -> Vec<ColumnKind> {
            find(name).columns.iter().map(|column| column.kind).collect()
        };
        use ColumnKind::{Any, Blob, Int, Name, Text};
        assert_eq!(kinds("fs_dentry"), [Int, Name, Int, Int]);
        assert_eq!((kinds("fs_data"), find("fs_data").key), (vec![Int, Int, Blob], None));
        assert_eq!((kinds("acetate_meta"), find("acetate_meta").key), (vec![Text, Any], None));
        assert_eq!(kinds("fs_config"), [Text, Text]);
        assert_eq!(kinds("sqlite_sequence"), [Text, Int]);
        assert!(find("acetate_past").is_late);
        assert!(find("acetate_checkpoint").is_late && find("acetate_tool_call").is_late);
        assert!(find("kv_store").is_outside && find("tool_calls").is_outside);
        assert!(find("acetate_tool_call").is_outside && !find("acetate_past").is_outside);
    }
}
