//! Checks a session file against the specification's rules and our invariants (docs/SCHEMA.md),
//! in plain SQL and with none of the crate's code: a second opinion.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

/// Each query returns the rows that break a rule, as one text each.
const RULES: &[(&str, &str)] = &[
    (
        "S1 the root is a directory",
        "SELECT 'no root' WHERE NOT EXISTS
           (SELECT 1 FROM fs_inode WHERE ino = 1 AND mode & 61440 = 16384)",
    ),
    (
        "S2 an entry has an inode",
        "SELECT id FROM fs_dentry WHERE ino NOT IN (SELECT ino FROM fs_inode)",
    ),
    (
        "S3 an entry has a parent directory",
        "SELECT id FROM fs_dentry WHERE parent_ino NOT IN
           (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)",
    ),
    (
        "S4 names are unique",
        "SELECT parent_ino || '/' || CAST(name AS TEXT) FROM fs_dentry
         GROUP BY parent_ino, CAST(name AS BLOB) HAVING count(*) > 1",
    ),
    (
        "S5 modes have a type",
        "SELECT ino FROM fs_inode WHERE mode & 61440 NOT IN
           (4096, 8192, 16384, 24576, 32768, 40960, 49152) OR mode > 65535",
    ),
    (
        "S6 an inode has an entry",
        "SELECT ino FROM fs_inode WHERE ino <> 1 AND ino NOT IN (SELECT ino FROM fs_dentry)",
    ),
    (
        "S7 nlink counts entries; the root has 1",
        "SELECT ino FROM fs_inode i WHERE nlink <>
           CASE ino WHEN 1 THEN 1 ELSE (SELECT count(*) FROM fs_dentry d WHERE d.ino = i.ino) END",
    ),
    (
        "S8 a directory has one entry",
        "SELECT ino FROM fs_inode i WHERE mode & 61440 = 16384 AND ino <> 1
           AND (SELECT count(*) FROM fs_dentry d WHERE d.ino = i.ino) <> 1",
    ),
    (
        "S9 nanoseconds are below a second",
        "SELECT ino FROM fs_inode WHERE NOT (atime_nsec BETWEEN 0 AND 999999999
           AND mtime_nsec BETWEEN 0 AND 999999999 AND ctime_nsec BETWEEN 0 AND 999999999)",
    ),
    (
        "D1 and D2 chunks have their length, below the size",
        "SELECT d.ino || ':' || chunk_index || ':' || length(data)
         FROM fs_data d LEFT JOIN fs_inode i ON i.ino = d.ino,
           (SELECT CAST(value AS INTEGER) AS c FROM fs_config WHERE key = 'chunk_size')
         WHERE i.ino IS NULL OR i.mode & 61440 <> 32768 OR typeof(data) <> 'blob'
           OR chunk_index < 0 OR chunk_index * c >= i.size
           OR length(data) <> min(c, i.size - chunk_index * c)",
    ),
    (
        "D3 holes are counted",
        "SELECT i.ino FROM fs_inode i LEFT JOIN acetate_inode a ON a.ino = i.ino
           LEFT JOIN acetate_copy_up u ON u.delta_ino = i.ino,
           (SELECT CAST(value AS INTEGER) AS c FROM fs_config WHERE key = 'chunk_size')
         WHERE i.mode & 61440 = 32768 AND ifnull(a.holes, 0) <>
           i.size / c + (i.size % c > 0) - (SELECT count(*) FROM fs_data d WHERE d.ino = i.ino)
           - ifnull((end_byte + c - 1) / c - next_byte / c - (SELECT count(*) FROM fs_data d
               WHERE d.ino = i.ino AND chunk_index >= next_byte / c
                 AND chunk_index < (end_byte + c - 1) / c), 0)",
    ),
    (
        "D4 side rows belong to an inode and say something",
        "SELECT ino FROM acetate_inode WHERE ino NOT IN (SELECT ino FROM fs_inode)
           OR (subdirs IS NULL AND holes = 0 AND create_verifier IS NULL)",
    ),
    (
        "D6 symbolic links and only they have a target",
        "SELECT i.ino FROM fs_inode i LEFT JOIN fs_symlink s ON s.ino = i.ino
         WHERE (i.mode & 61440 = 40960) <> (s.ino IS NOT NULL)
         UNION ALL SELECT ino FROM fs_symlink WHERE ino NOT IN (SELECT ino FROM fs_inode)",
    ),
    (
        "M2 numbers in use are below the mark",
        "SELECT ino FROM fs_inode WHERE ino >=
           (SELECT value FROM acetate_meta WHERE key = 'next_ino')",
    ),
    (
        "M5 limits are numbers from 0 on",
        "SELECT 0 FROM acetate_meta WHERE key IN ('quota_bytes', 'quota_files', 'max_file_bytes')
           AND (typeof(value) <> 'integer' OR value < 0)",
    ),
    (
        "M6 the log says how many rows it lost",
        "SELECT 0 FROM acetate_meta WHERE key IN ('audit_dropped', 'audit_since')
           AND (typeof(value) <> 'integer' OR key = 'audit_dropped' AND value < 0)",
    ),
    (
        "O1 both origin tables agree",
        "SELECT a.delta_ino FROM acetate_origin a
         LEFT JOIN fs_origin f ON f.delta_ino = a.delta_ino
         WHERE f.base_ino <> a.base_ino OR a.delta_ino NOT IN (SELECT ino FROM fs_inode)
           OR f.base_ino IS NULL
             AND NOT EXISTS (SELECT 1 FROM acetate_meta WHERE key = 'sealed_for')",
    ),
    (
        "O2 a base object has one delta inode",
        "SELECT base_ino FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
         GROUP BY base_ino, iif(o.nlink > 1 AND i.mode & 61440 <> 16384, NULL, base_path)
         HAVING count(*) > 1",
    ),
    (
        "O3 originals are of files, links and directories, with a digest and all content",
        "SELECT CAST(base_path AS TEXT) FROM acetate_original
         WHERE mode & 61440 NOT IN (16384, 32768, 40960)
           OR content IS NOT NULL AND (length(digest) IS NOT 20 OR length(content) <> size)",
    ),
    (
        "C1 what is pending belongs to a copied-up file",
        "SELECT u.delta_ino FROM acetate_copy_up u LEFT JOIN fs_inode i ON i.ino = u.delta_ino
           LEFT JOIN acetate_origin o ON o.delta_ino = u.delta_ino,
           (SELECT CAST(value AS INTEGER) AS c FROM fs_config WHERE key = 'chunk_size')
         WHERE i.mode & 61440 IS NOT 32768 OR o.size IS NULL OR next_byte < 0 OR next_byte % c > 0
           OR next_byte >= end_byte OR end_byte > i.size OR end_byte > o.size",
    ),
    (
        "R1 redirects belong to directories",
        "SELECT delta_ino FROM acetate_redirect WHERE delta_ino NOT IN
           (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)",
    ),
    (
        "W3 opaque are directories but the root, without a redirect",
        "SELECT delta_ino FROM acetate_opaque WHERE delta_ino = 1 OR delta_ino NOT IN
           (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)
           OR delta_ino IN (SELECT delta_ino FROM acetate_redirect)",
    ),
    (
        "M1 a session with opaque directories says so",
        "SELECT value FROM acetate_meta WHERE key = 'format_version' AND value < 2
           AND EXISTS (SELECT 1 FROM acetate_opaque)",
    ),
    ("L1 hidden names are counted", "SELECT base_ino FROM acetate_link WHERE hidden < 1"),
];

/// Every broken rule of the session at `path`, with what breaks it; empty if all is well.
pub fn violations(path: &Path) -> Vec<String> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    let mut found = Vec::new();
    let integrity: String = conn.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    if integrity != "ok" {
        found.push(format!("integrity_check: {integrity}"));
    }
    for (rule, sql) in RULES {
        let mut statement = conn.prepare(sql).unwrap();
        let broken = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0));
        for value in broken.unwrap() {
            found.push(format!("{rule}: {:?}", value.unwrap()));
        }
    }
    whiteouts(&conn, &mut found);
    checkpoints(&conn, &mut found);
    incomplete(&conn, &mut found);
    call_bounds(&conn, &mut found);
    found
}

/// K1: saved rows belong to a checkpoint.
fn checkpoints(conn: &Connection, found: &mut Vec<String>) {
    let tables =
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'acetate_old_%'";
    let mut tables = conn.prepare(tables).unwrap();
    for table in tables.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        let table = table.unwrap();
        let lost = format!(
            "SELECT count(*) FROM {table}
             WHERE checkpoint NOT IN (SELECT id FROM acetate_checkpoint)"
        );
        let lost: i64 = conn.query_row(&lost, [], |row| row.get(0)).unwrap();
        if lost > 0 {
            found.push(format!("K1 saved rows have a checkpoint: {lost} of {table} have none"));
        }
    }
}

/// K2: what makes a checkpoint incomplete is known.
fn incomplete(conn: &Connection, found: &mut Vec<String>) {
    let of_table = "SELECT sql FROM sqlite_master WHERE name = 'acetate_checkpoint'";
    let sql: Option<String> = conn.query_row(of_table, [], |row| row.get(0)).optional().unwrap();
    if sql.is_some_and(|sql| sql.contains("incomplete")) {
        let unknown = "SELECT count(*) FROM acetate_checkpoint
             WHERE incomplete NOT IN ('other-program', 'no-room')";
        let unknown: i64 = conn.query_row(unknown, [], |row| row.get(0)).unwrap();
        if unknown > 0 {
            found.push(format!("K2 {unknown} checkpoints are incomplete for unknown reasons"));
        }
    }
}

/// T1: bounds are those of a call, and of rows of the log.
fn call_bounds(conn: &Connection, found: &mut Vec<String>) {
    let of_table = "SELECT 1 FROM sqlite_master WHERE name = 'acetate_tool_call'";
    if !conn.prepare(of_table).unwrap().exists([]).unwrap() {
        return;
    }
    let unsound = "SELECT count(*) FROM acetate_tool_call WHERE
         (SELECT count(*) FROM tool_calls WHERE id = call) = 0
         OR NOT (0 <= begin_op AND begin_op <= end_op)
         OR end_op > (SELECT ifnull(max(id), 0) FROM acetate_op)";
    let unsound: i64 = conn.query_row(unsound, [], |row| row.get(0)).unwrap();
    if unsound > 0 {
        found.push(format!("T1 {unsound} bounds are of no call, or not of rows of the log"));
    }
}

/// Asserts that no rule is broken.
#[track_caller]
pub fn assert_consistent(path: &Path) {
    let found = violations(path);
    assert!(found.is_empty(), "{}: {found:#?}", path.display());
}

/// W1: no live entry at or below a whiteout. W2: `parent_path` is derived from `path`.
fn whiteouts(conn: &Connection, found: &mut Vec<String>) {
    let mut hidden = BTreeSet::new();
    let mut statement = conn
        .prepare("SELECT CAST(path AS BLOB), CAST(parent_path AS BLOB) FROM fs_whiteout")
        .unwrap();
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .unwrap();
    for row in rows {
        let (path, parent) = row.unwrap();
        let slash = path.iter().rposition(|&b| b == b'/');
        let derived = match slash {
            Some(0) => &b"/"[..],
            Some(at) => &path[..at],
            None => &b"no path"[..],
        };
        // Implementations that do not know the column leave it empty.
        if parent != derived && !parent.is_empty() {
            found.push(format!("W2 parent_path is derived: {}", path.escape_ascii()));
        }
        hidden.insert(path);
    }
    let mut statement = conn
        .prepare("SELECT CAST(name AS BLOB), ino FROM fs_dentry WHERE parent_ino = ?1")
        .unwrap();
    let mut todo = vec![(1i64, Vec::new())];
    while let Some((parent, prefix)) = todo.pop() {
        let rows = statement
            .query_map([parent], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?)))
            .unwrap();
        for row in rows {
            let (name, ino) = row.unwrap();
            let path = [&prefix[..], b"/", &name[..]].concat();
            if hidden.contains(&path) {
                found.push(format!("W1 a whiteout hides an entry: {}", path.escape_ascii()));
            } else if path.len() < 65536 {
                todo.push((ino, path));
            }
        }
    }
}
