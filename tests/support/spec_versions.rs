//! Sessions of each version of the Agent Filesystem Specification, made by its own statements.

use std::path::Path;

use acetate::vfs::FileKind;
use rusqlite::{Connection, params};

use super::fixture;
use super::tree::{Object, Tree};

/// The versions, of 0.3 the first and the last form: it changed the key of `fs_dentry`.
pub const VERSIONS: [&str; 6] = ["0.0", "0.1", "0.2", "0.3 at first", "0.3", "0.4"];

/// The base of those versions that know one.
const BASE: &str = r#"
    changed "as it was"
    gone/x "x"
    kept/a "a"
    kept/b "b"
"#;

/// Seconds of all times.
pub const SECS: i64 = 1_600_000_000;

const TOOLS: &str = "
CREATE TABLE tool_calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  parameters TEXT,
  result TEXT,
  error TEXT,
  started_at INTEGER NOT NULL,
  completed_at INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL
);
CREATE INDEX idx_tool_calls_name ON tool_calls(name);
CREATE INDEX idx_tool_calls_started_at ON tool_calls(started_at);
CREATE TABLE kv_store (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  created_at INTEGER DEFAULT (unixepoch()),
  updated_at INTEGER DEFAULT (unixepoch())
);
CREATE INDEX idx_kv_store_created_at ON kv_store(created_at);
INSERT INTO tool_calls (name, parameters, result, error, started_at, completed_at, duration_ms)
  VALUES ('good', '{}', '1', NULL, 5, 6, 1000), ('bad', NULL, NULL, 'why', 7, 7, 0);
INSERT INTO kv_store (key, value, updated_at) VALUES ('k', '[1]', unixepoch());
";

const SYMLINK: &str = "CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT NOT NULL);";

const CONFIG_AND_CHUNKS: &str = "
CREATE TABLE fs_config (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
CREATE TABLE fs_data (
  ino INTEGER NOT NULL,
  chunk_index INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (ino, chunk_index)
);
INSERT INTO fs_config (key, value) VALUES ('chunk_size', '4096');
";

const ENTRIES: &str = "
CREATE TABLE fs_dentry (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  parent_ino INTEGER NOT NULL,
  ino INTEGER NOT NULL,
  UNIQUE(parent_ino, name)
);
CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name);
";

const WHITEOUTS: &str = "
CREATE TABLE fs_whiteout (
  path TEXT PRIMARY KEY,
  parent_path TEXT NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE INDEX idx_fs_whiteout_parent ON fs_whiteout(parent_path);
";

const ORIGIN: &str =
    "CREATE TABLE fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL);";

/// The statements that make a version's tables.
fn tables(version: &str) -> String {
    let inode = |nlink: &str, more: &str| {
        format!(
            "CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL,
             {nlink} uid INTEGER NOT NULL DEFAULT 0, gid INTEGER NOT NULL DEFAULT 0,
             size INTEGER NOT NULL DEFAULT 0, atime INTEGER NOT NULL, mtime INTEGER NOT NULL,
             ctime INTEGER NOT NULL {more});"
        )
    };
    let nlink = "nlink INTEGER NOT NULL DEFAULT 0,";
    let special = ", rdev INTEGER NOT NULL DEFAULT 0, atime_nsec INTEGER NOT NULL DEFAULT 0,
        mtime_nsec INTEGER NOT NULL DEFAULT 0, ctime_nsec INTEGER NOT NULL DEFAULT 0";
    let keyed_by_name = "CREATE TABLE fs_dentry (name TEXT NOT NULL, parent_ino INTEGER NOT NULL,
        ino INTEGER NOT NULL, PRIMARY KEY(parent_ino, name));
        CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name);";
    let parts = match version {
        "0.0" => return first_tables(),
        "0.1" => vec![inode("", ""), ENTRIES.into()],
        "0.2" => vec![inode(nlink, ""), ENTRIES.into(), WHITEOUTS.into()],
        "0.3 at first" => {
            vec![inode(nlink, ""), keyed_by_name.into(), WHITEOUTS.into(), ORIGIN.into()]
        }
        "0.3" => vec![inode(nlink, ""), ENTRIES.into(), WHITEOUTS.into(), ORIGIN.into()],
        _ => vec![inode(nlink, special), ENTRIES.into(), WHITEOUTS.into(), ORIGIN.into()],
    };
    format!("{TOOLS} {SYMLINK} {CONFIG_AND_CHUNKS} {}", parts.concat())
}

/// Version 0.0 has foreign keys, and chunks of any length at any offset.
fn first_tables() -> String {
    format!(
        "{TOOLS}
CREATE TABLE fs_inode (
  ino INTEGER PRIMARY KEY AUTOINCREMENT,
  mode INTEGER NOT NULL,
  uid INTEGER NOT NULL DEFAULT 0,
  gid INTEGER NOT NULL DEFAULT 0,
  size INTEGER NOT NULL DEFAULT 0,
  atime INTEGER NOT NULL,
  mtime INTEGER NOT NULL,
  ctime INTEGER NOT NULL
);
CREATE TABLE fs_dentry (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  parent_ino INTEGER NOT NULL,
  ino INTEGER NOT NULL,
  FOREIGN KEY (ino) REFERENCES fs_inode(ino) ON DELETE CASCADE,
  FOREIGN KEY (parent_ino) REFERENCES fs_inode(ino) ON DELETE CASCADE,
  UNIQUE(parent_ino, name)
);
CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name);
CREATE TABLE fs_data (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  ino INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  size INTEGER NOT NULL,
  data BLOB NOT NULL,
  FOREIGN KEY (ino) REFERENCES fs_inode(ino) ON DELETE CASCADE
);
CREATE INDEX idx_fs_data_ino_offset ON fs_data(ino, offset);
CREATE TABLE fs_symlink (
  ino INTEGER PRIMARY KEY,
  target TEXT NOT NULL,
  FOREIGN KEY (ino) REFERENCES fs_inode(ino) ON DELETE CASCADE
);"
    )
}

/// A session that is being made.
pub struct Made {
    conn: Connection,
    version: &'static str,
    tree: Tree,
}

/// A session of a version, over an empty base, with nothing but a root.
pub fn empty(path: &Path, base: &Path, version: &'static str) -> Made {
    std::fs::create_dir(base).unwrap();
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(&tables(version)).unwrap();
    let made = Made { conn, version, tree: Tree::new() };
    let root = "INSERT INTO fs_inode (ino, mode, uid, gid, size, atime, mtime, ctime)
        VALUES (1, 16877, 0, 0, 0, unixepoch(), unixepoch(), unixepoch())";
    made.conn.execute(root, []).unwrap();
    if made.has_links() {
        made.conn.execute("UPDATE fs_inode SET nlink = 1", []).unwrap();
    }
    made
}

/// A session of a version with something of everything, and what its merged tree is.
pub fn make(path: &Path, base: &Path, version: &'static str) -> Tree {
    let mut made = empty(path, base, version);
    let dir = made.object(1, "dir", "dir", 0o040_750, b"");
    let file = made.object(dir, "file", "dir/file", 0o100_640, b"content");
    made.entry(dir, "hard", file);
    made.tree.insert(b"dir/hard".to_vec(), made.tree[&b"dir/file"[..]].clone());
    made.object(1, "link", "link", 0o120_777, b"dir/file");
    made.object(1, "empty", "empty", 0o100_644, b"");
    let large: Vec<u8> = (0..150_000u32).map(|at| (at * 31 % 251) as u8).collect();
    made.object(1, "large", "large", 0o100_600, &large);
    if !matches!(version, "0.0" | "0.1") {
        fixture::build(base, BASE);
        let changed = made.object(1, "changed", "changed", 0o100_644, b"as it is");
        for path in ["/gone", "/kept/a"] {
            made.white_out(path);
        }
        if version != "0.2" {
            let origin = "INSERT OR REPLACE INTO fs_origin (delta_ino, base_ino) VALUES (?, ?)";
            made.conn.execute(origin, [changed, 3]).unwrap();
        }
        let of_base = |kind, mode, content: &str| Object { kind, mode, content: content.into() };
        made.tree.insert(b"kept".to_vec(), of_base(FileKind::Directory, 0o755, ""));
        made.tree.insert(b"kept/b".to_vec(), of_base(FileKind::Regular, 0o644, "b"));
    }
    made.tree
}

impl Made {
    fn has_links(&self) -> bool {
        !matches!(self.version, "0.0" | "0.1")
    }

    /// "Creating a File".
    fn object(&mut self, dir: i64, name: &str, path: &str, mode: u32, content: &[u8]) -> i64 {
        let insert = "INSERT INTO fs_inode (mode, uid, gid, size, atime, mtime, ctime)
            VALUES (?, 1000, 100, 0, ?, ?, ?) RETURNING ino";
        let row = params![mode, SECS, SECS + 1, SECS + 2];
        let ino: i64 = self.conn.query_row(insert, row, |row| row.get(0)).unwrap();
        self.entry(dir, name, ino);
        let kind = FileKind::from_mode(mode).unwrap();
        match kind {
            FileKind::Regular => self.data(ino, content),
            FileKind::Symlink => {
                let target = std::str::from_utf8(content).unwrap();
                let insert = "INSERT INTO fs_symlink (ino, target) VALUES (?, ?)";
                self.conn.execute(insert, params![ino, target]).unwrap();
            }
            _ => {}
        }
        let object = Object { kind, mode: mode & 0o7777, content: content.to_vec() };
        self.tree.insert(path.as_bytes().to_vec(), object);
        ino
    }

    fn data(&self, ino: i64, content: &[u8]) {
        let (mut at, mut number) = (0, 0);
        while at < content.len() {
            // Of version 0.0, as a writer that appends leaves them.
            let bytes = if self.version == "0.0" { 1 + number * 7000 } else { 4096 };
            let piece = &content[at..content.len().min(at + bytes)];
            if self.version == "0.0" {
                self.chunk_at(ino, at as i64, piece);
            } else {
                let insert = "INSERT INTO fs_data (ino, chunk_index, data) VALUES (?, ?, ?)";
                self.conn.execute(insert, params![ino, number as i64, piece]).unwrap();
            }
            (at, number) = (at + piece.len(), number + 1);
        }
        let update = "UPDATE fs_inode SET size = ?, mtime = ? WHERE ino = ?";
        self.conn.execute(update, params![content.len() as i64, SECS + 1, ino]).unwrap();
    }

    /// A chunk as version 0.0 has them.
    fn chunk_at(&self, ino: i64, offset: i64, data: &[u8]) {
        let insert = "INSERT INTO fs_data (ino, offset, size, data) VALUES (?, ?, ?, ?)";
        self.conn.execute(insert, params![ino, offset, data.len() as i64, data]).unwrap();
    }

    /// Adds a file of version 0.0 with chunks (offset, data), and a size.
    pub fn chunked(&self, name: &str, size: i64, chunks: &[(i64, &[u8])]) -> i64 {
        let insert = "INSERT INTO fs_inode (mode, size, atime, mtime, ctime)
            VALUES (33188, ?, 1, 1, 1) RETURNING ino";
        let ino: i64 = self.conn.query_row(insert, [size], |row| row.get(0)).unwrap();
        self.entry(1, name, ino);
        for (offset, data) in chunks {
            self.chunk_at(ino, *offset, data);
        }
        ino
    }

    /// "Creating a Hard Link".
    fn entry(&self, parent: i64, name: &str, ino: i64) {
        let insert = "INSERT INTO fs_dentry (name, parent_ino, ino) VALUES (?, ?, ?)";
        self.conn.execute(insert, params![name, parent, ino]).unwrap();
        if self.has_links() {
            let count = "UPDATE fs_inode SET nlink = nlink + 1 WHERE ino = ?";
            self.conn.execute(count, [ino]).unwrap();
        }
    }

    /// "Create Whiteout".
    fn white_out(&self, path: &str) {
        let parent = &path[..path.rfind('/').unwrap().max(1)];
        let insert = "INSERT INTO fs_whiteout (path, parent_path, created_at) VALUES (?, ?, ?)
            ON CONFLICT(path) DO UPDATE SET created_at = excluded.created_at";
        self.conn.execute(insert, params![path, parent, SECS]).unwrap();
    }
}
