//! Table definitions: the specification's, verbatim, and our own.

use rusqlite::Connection;

use crate::delta::Result;

use super::whiteout;

/// The version of the specification that acetate writes.
pub const SPEC_VERSION: &str = "0.4";

/// The tables of the Agent Filesystem Specification 0.4. Additions let other implementations read
/// and write the file: `tool_calls.status`, at the position where they expect it; `completed_at`
/// and `duration_ms` may be NULL while a call is pending; a default for `fs_whiteout.parent_path`;
/// and `fs_overlay_config`.
pub const SPEC_TABLES: &[(&str, &str)] = &[
    (
        "tool_calls",
        "(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  parameters TEXT,
  result TEXT,
  error TEXT,
  status TEXT NOT NULL DEFAULT 'pending',
  started_at INTEGER NOT NULL,
  completed_at INTEGER,
  duration_ms INTEGER
)",
    ),
    (
        "fs_config",
        "(
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
)",
    ),
    (
        "fs_inode",
        "(
  ino INTEGER PRIMARY KEY AUTOINCREMENT,
  mode INTEGER NOT NULL,
  nlink INTEGER NOT NULL DEFAULT 0,
  uid INTEGER NOT NULL DEFAULT 0,
  gid INTEGER NOT NULL DEFAULT 0,
  size INTEGER NOT NULL DEFAULT 0,
  atime INTEGER NOT NULL,
  mtime INTEGER NOT NULL,
  ctime INTEGER NOT NULL,
  rdev INTEGER NOT NULL DEFAULT 0,
  atime_nsec INTEGER NOT NULL DEFAULT 0,
  mtime_nsec INTEGER NOT NULL DEFAULT 0,
  ctime_nsec INTEGER NOT NULL DEFAULT 0
)",
    ),
    (
        "fs_dentry",
        "(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  parent_ino INTEGER NOT NULL,
  ino INTEGER NOT NULL,
  UNIQUE(parent_ino, name)
)",
    ),
    (
        "fs_data",
        "(
  ino INTEGER NOT NULL,
  chunk_index INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (ino, chunk_index)
)",
    ),
    (
        "fs_symlink",
        "(
  ino INTEGER PRIMARY KEY,
  target TEXT NOT NULL
)",
    ),
    (
        "fs_whiteout",
        "(
  path TEXT PRIMARY KEY,
  parent_path TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL
)",
    ),
    (
        "fs_origin",
        "(
  delta_ino INTEGER PRIMARY KEY,
  base_ino INTEGER NOT NULL
)",
    ),
    (
        "fs_overlay_config",
        "(
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
)",
    ),
    (
        "kv_store",
        "(
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  created_at INTEGER DEFAULT (unixepoch()),
  updated_at INTEGER DEFAULT (unixepoch())
)",
    ),
];

/// The specification's indexes.
pub(super) const SPEC_INDEXES: &[&str] = &[
    "CREATE INDEX IF NOT EXISTS idx_tool_calls_name ON tool_calls(name)",
    "CREATE INDEX IF NOT EXISTS idx_tool_calls_started_at ON tool_calls(started_at)",
    "CREATE INDEX IF NOT EXISTS idx_fs_dentry_parent ON fs_dentry(parent_ino, name)",
    "CREATE INDEX IF NOT EXISTS idx_fs_whiteout_parent ON fs_whiteout(parent_path)",
    "CREATE INDEX IF NOT EXISTS idx_kv_store_created_at ON kv_store(created_at)",
];

/// Our own tables; also the pattern of the empty ones of [`stand_in`].
pub(super) const OUR_TABLES: &[(&str, &str)] = &[
    (
        "acetate_meta",
        "(
  key TEXT PRIMARY KEY,
  value NOT NULL
)",
    ),
    (
        "acetate_inode",
        "(
  ino INTEGER PRIMARY KEY,
  subdirs INTEGER,
  holes INTEGER NOT NULL DEFAULT 0,
  create_verifier BLOB
)",
    ),
    (
        "acetate_origin",
        "(
  delta_ino INTEGER PRIMARY KEY,
  base_ino INTEGER NOT NULL,
  base_path BLOB NOT NULL,
  dev INTEGER NOT NULL,
  ino INTEGER NOT NULL,
  nlink INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime INTEGER NOT NULL,
  mtime_nsec INTEGER NOT NULL,
  ctime INTEGER NOT NULL,
  ctime_nsec INTEGER NOT NULL,
  mode INTEGER,
  uid INTEGER,
  gid INTEGER
)",
    ),
    (
        "acetate_original",
        "(
  id INTEGER PRIMARY KEY,
  base_path BLOB NOT NULL UNIQUE,
  base_ino INTEGER NOT NULL,
  mode INTEGER NOT NULL,
  uid INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime INTEGER NOT NULL,
  mtime_nsec INTEGER NOT NULL,
  ctime INTEGER NOT NULL,
  ctime_nsec INTEGER NOT NULL,
  digest BLOB,
  content BLOB
)",
    ),
    (
        "acetate_copy_up",
        "(
  delta_ino INTEGER PRIMARY KEY,
  next_byte INTEGER NOT NULL,
  end_byte INTEGER NOT NULL
)",
    ),
    (
        "acetate_redirect",
        "(
  delta_ino INTEGER PRIMARY KEY,
  base_path BLOB NOT NULL UNIQUE
)",
    ),
    (
        "acetate_opaque",
        "(
  delta_ino INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL
)",
    ),
    (
        "acetate_link",
        "(
  base_ino INTEGER PRIMARY KEY,
  hidden INTEGER NOT NULL,
  ctime INTEGER NOT NULL,
  ctime_nsec INTEGER NOT NULL
)",
    ),
    (
        "acetate_op",
        "(
  id INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  time_nsec INTEGER NOT NULL,
  client TEXT NOT NULL,
  uid INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  procedure TEXT NOT NULL,
  path TEXT NOT NULL,
  path2 TEXT,
  fileid INTEGER NOT NULL,
  offset INTEGER,
  length INTEGER,
  call INTEGER,
  export TEXT,
  note TEXT,
  set_mode INTEGER,
  set_uid INTEGER,
  set_gid INTEGER,
  set_atime INTEGER,
  set_atime_nsec INTEGER,
  set_mtime INTEGER,
  set_mtime_nsec INTEGER
)",
    ),
];

/// Our own indexes.
pub(super) const OUR_INDEXES: &[&str] = &[
    "CREATE INDEX IF NOT EXISTS acetate_dentry_ino ON fs_dentry(ino)",
    "CREATE INDEX IF NOT EXISTS acetate_origin_base ON acetate_origin(base_ino)",
];

/// Columns that tables of another implementation, or of an earlier acetate, may lack.
const ADDED_COLUMNS: &[(&str, &str, &str)] = &[
    ("fs_whiteout", "parent_path", "TEXT NOT NULL DEFAULT ''"),
    ("tool_calls", "status", "TEXT NOT NULL DEFAULT 'pending'"),
    ("acetate_origin", "mode", "INTEGER"),
    ("acetate_origin", "uid", "INTEGER"),
    ("acetate_origin", "gid", "INTEGER"),
    ("acetate_op", "call", "INTEGER"),
    ("acetate_op", "export", "TEXT"),
    ("acetate_op", "note", "TEXT"),
    ("acetate_op", "set_mode", "INTEGER"),
    ("acetate_op", "set_uid", "INTEGER"),
    ("acetate_op", "set_gid", "INTEGER"),
    ("acetate_op", "set_atime", "INTEGER"),
    ("acetate_op", "set_atime_nsec", "INTEGER"),
    ("acetate_op", "set_mtime", "INTEGER"),
    ("acetate_op", "set_mtime_nsec", "INTEGER"),
];

/// Creates all missing tables, columns and indexes, in the caller's transaction.
pub fn complete(conn: &Connection) -> Result<()> {
    create_tables(conn, SPEC_TABLES)?;
    create_tables(conn, OUR_TABLES)?;
    for (table, column, kind) in ADDED_COLUMNS {
        if !has_column(conn, table, column)? {
            conn.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
        }
    }
    for index in SPEC_INDEXES.iter().chain(OUR_INDEXES) {
        conn.execute_batch(index)?;
    }
    whiteout::derive_parents(conn)
}

/// Creates one table of the specification with its indexes, in the caller's transaction.
pub fn create_of_spec(conn: &Connection, table: &str) -> Result<()> {
    for pair in SPEC_TABLES.iter().filter(|(name, _)| *name == table) {
        create_tables(conn, std::slice::from_ref(pair))?;
    }
    let on = format!(" ON {table}(");
    for index in SPEC_INDEXES.iter().filter(|index| index.contains(&on)) {
        conn.execute_batch(index)?;
    }
    Ok(())
}

fn create_tables(conn: &Connection, tables: &[(&str, &str)]) -> Result<()> {
    for (table, columns) in tables {
        conn.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {table} {columns}"))?;
    }
    Ok(())
}

/// Whether no table or column is missing.
pub fn is_complete(conn: &Connection) -> Result<bool> {
    for (table, _) in SPEC_TABLES.iter().chain(OUR_TABLES) {
        if !has_table(conn, table)? {
            return Ok(false);
        }
    }
    for (table, column, _) in ADDED_COLUMNS {
        if !has_column(conn, table, column)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates empty temporary tables for those of ours that the file lacks, and views for tables that
/// lack columns, on a connection that must not change the file. SQLite resolves temporary names
/// first.
pub fn create_missing_as_temp(conn: &Connection) -> Result<()> {
    for (table, columns) in OUR_TABLES {
        if !has_table(conn, table)? {
            conn.execute_batch(&format!("CREATE TEMP TABLE {table} {columns}"))?;
        }
    }
    if has_table(conn, "acetate_origin")? && !has_column(conn, "acetate_origin", "mode")? {
        conn.execute_batch(
            "CREATE TEMP VIEW acetate_origin AS
             SELECT *, NULL AS mode, NULL AS uid, NULL AS gid FROM main.acetate_origin",
        )?;
    }
    if !has_table(conn, "fs_whiteout")? {
        conn.execute_batch(
            "CREATE TEMP TABLE fs_whiteout (path TEXT PRIMARY KEY, parent_path TEXT, created_at)",
        )?;
    } else if !has_column(conn, "fs_whiteout", "parent_path")? {
        conn.execute_batch(
            "CREATE TEMP VIEW fs_whiteout AS
             SELECT path, '' AS parent_path, created_at FROM main.fs_whiteout",
        )?;
    }
    if !has_table(conn, "fs_overlay_config")? {
        conn.execute_batch("CREATE TEMP TABLE fs_overlay_config (key TEXT PRIMARY KEY, value)")?;
    }
    Ok(())
}

/// The columns of a table, as `CREATE TABLE` declares them.
pub(super) fn declaration(table: &str) -> &'static str {
    let mut all = SPEC_TABLES.iter().chain(OUR_TABLES);
    all.find(|(name, _)| *name == table).map_or("", |(_, columns)| columns)
}

/// The names of the specification's tables and of ours.
pub fn table_names() -> impl Iterator<Item = &'static str> {
    SPEC_TABLES.iter().chain(OUR_TABLES).map(|(name, _)| *name)
}

/// The names of a table's columns, as `CREATE TABLE` declares them.
pub fn column_names(table: &str) -> Vec<&'static str> {
    columns(table).into_iter().map(|(name, _)| name).collect()
}

/// The columns of a table with their types, as `CREATE TABLE` declares them.
pub(super) fn columns(table: &str) -> Vec<(&'static str, &'static str)> {
    let lines = declaration(table).lines().map(str::trim);
    let column = |line: &'static str| {
        let mut words = line.split([' ', ',']);
        let (name, kind) = (words.next()?, words.next()?);
        name.starts_with(|c: char| c.is_ascii_lowercase()).then_some((name, kind))
    };
    lines.filter_map(column).collect()
}

/// Gives a temporary table the indexes of the table with its name.
pub(super) fn index_temp(conn: &Connection, table: &str) -> Result<()> {
    let on = format!(" ON {table}(");
    for index in SPEC_INDEXES.iter().chain(OUR_INDEXES).filter(|index| index.contains(&on)) {
        conn.execute_batch(&index.replacen("IF NOT EXISTS ", "IF NOT EXISTS temp.", 1))?;
    }
    Ok(())
}

/// Whether the file has the table.
pub fn has_table(conn: &Connection, table: &str) -> Result<bool> {
    let mut statement =
        conn.prepare("SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND lower(name) = ?1")?;
    Ok(statement.exists([table])?)
}

/// Whether the file has the index.
pub fn has_index(conn: &Connection, index: &str) -> Result<bool> {
    let mut statement =
        conn.prepare_cached("SELECT 1 FROM main.sqlite_master WHERE type = 'index' AND name = ?1")?;
    Ok(statement.exists([index])?)
}

/// Whether the file's table has the column.
pub fn has_column(conn: &Connection, table: &str, column: &str) -> Result<bool> {
    let mut statement =
        conn.prepare("SELECT 1 FROM pragma_table_info(?1, 'main') WHERE lower(name) = ?2")?;
    Ok(statement.exists([table, column])?)
}
