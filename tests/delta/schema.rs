//! The tables are the specification's.

use super::Place;

/// The CREATE statements of the Agent Filesystem Specification 0.4, as it prints them, but
/// for line breaks.
const SPECIFICATION: &[&str] = &[
    "CREATE TABLE tool_calls ( id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
     parameters TEXT, result TEXT, error TEXT, started_at INTEGER NOT NULL, completed_at
     INTEGER NOT NULL, duration_ms INTEGER NOT NULL )",
    "CREATE INDEX idx_tool_calls_name ON tool_calls(name)",
    "CREATE INDEX idx_tool_calls_started_at ON tool_calls(started_at)",
    "CREATE TABLE fs_config ( key TEXT PRIMARY KEY, value TEXT NOT NULL )",
    "CREATE TABLE fs_inode ( ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL,
     nlink INTEGER NOT NULL DEFAULT 0, uid INTEGER NOT NULL DEFAULT 0, gid INTEGER NOT NULL
     DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, atime INTEGER NOT NULL, mtime INTEGER NOT
     NULL, ctime INTEGER NOT NULL, rdev INTEGER NOT NULL DEFAULT 0, atime_nsec INTEGER NOT
     NULL DEFAULT 0, mtime_nsec INTEGER NOT NULL DEFAULT 0, ctime_nsec INTEGER NOT NULL
     DEFAULT 0 )",
    "CREATE TABLE fs_dentry ( id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
     parent_ino INTEGER NOT NULL, ino INTEGER NOT NULL, UNIQUE(parent_ino, name) )",
    "CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name)",
    "CREATE TABLE fs_data ( ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL, data BLOB
     NOT NULL, PRIMARY KEY (ino, chunk_index) )",
    "CREATE TABLE fs_symlink ( ino INTEGER PRIMARY KEY, target TEXT NOT NULL )",
    "CREATE TABLE fs_whiteout ( path TEXT PRIMARY KEY, parent_path TEXT NOT NULL,
     created_at INTEGER NOT NULL )",
    "CREATE INDEX idx_fs_whiteout_parent ON fs_whiteout(parent_path)",
    "CREATE TABLE fs_origin ( delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL )",
    "CREATE TABLE kv_store ( key TEXT PRIMARY KEY, value TEXT NOT NULL, created_at INTEGER
     DEFAULT (unixepoch()), updated_at INTEGER DEFAULT (unixepoch()) )",
    "CREATE INDEX idx_kv_store_created_at ON kv_store(created_at)",
];

/// The additions that let other implementations read and write the file.
const ADDITIONS: &[(&str, &str)] = &[
    ("parent_path TEXT NOT NULL,", "parent_path TEXT NOT NULL DEFAULT '',"),
    // The SDKs add a call when it begins, and read the columns by their places.
    ("error TEXT, started_at", "error TEXT, status TEXT NOT NULL DEFAULT 'pending', started_at"),
    (
        "completed_at INTEGER NOT NULL, duration_ms INTEGER NOT NULL )",
        "completed_at INTEGER, duration_ms INTEGER )",
    ),
];

fn statements(place: &Place) -> Vec<String> {
    let sql = place.sql();
    let mut statement = sql.prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|row| one_line(&row.unwrap())).collect()
}

fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_new_session_has_the_specified_tables() {
    let place = Place::new();
    drop(place.create());
    let statements = statements(&place);
    for specified in SPECIFICATION {
        let mut expected = one_line(specified);
        for (from, to) in ADDITIONS {
            expected = expected.replace(from, to);
        }
        assert!(statements.contains(&expected), "{expected}\nis not in {statements:#?}");
    }
    let overlay = "CREATE TABLE fs_overlay_config ( key TEXT PRIMARY KEY, value TEXT NOT NULL )";
    assert!(statements.contains(&overlay.to_owned()));
    let more: Vec<_> = statements
        .iter()
        .map(|sql| sql.split_whitespace().nth(2).unwrap())
        .filter(|name| {
            !SPECIFICATION.iter().any(|sql| one_line(sql).contains(&format!(" {name} ")))
        })
        .filter(|name| !name.starts_with("acetate_"))
        .collect();
    assert_eq!(more, ["sqlite_sequence(name,seq)", "fs_overlay_config"]);
}

#[test]
fn a_new_session_holds_nothing_that_others_refuse() {
    let place = Place::new();
    drop(place.create());
    for sql in statements(&place) {
        let upper = sql.to_uppercase();
        for word in ["TRIGGER", "CHECK", "GENERATED", "VIRTUAL", "WITHOUT ROWID"] {
            assert!(!upper.contains(word), "{sql}");
        }
    }
    assert_eq!(place.number("PRAGMA auto_vacuum"), 0);
    assert_eq!(place.number("PRAGMA page_size"), 4096);
    assert_eq!(place.number("SELECT 1 FROM pragma_encoding WHERE encoding = 'UTF-8'"), 1);
    assert_eq!(
        place.number("SELECT CAST(value AS INTEGER) FROM fs_config WHERE key = 'chunk_size'"),
        4096
    );
    assert_eq!(place.number("SELECT mode FROM fs_inode WHERE ino = 1"), 16877);
}
