//! A reader of sessions that follows the Agent Filesystem Specification 0.4 to the letter, in
//! plain SQL and with none of the crate's code: what another implementation sees.
//!
//! It knows the specification's tables and the base directory, and no table of ours.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use acetate::vfs::FileKind;
use rusqlite::{Connection, OptionalExtension, params};

use super::tree::{Object, Tree};

/// The merged tree of a session and its base.
pub fn read_tree(session: &Path, base: &Path) -> Tree {
    read(session, base, false)
}

/// The same by a reader that strings chunks together, whatever their numbers and the size are
/// (specification 0.4, "Reading a File").
pub fn read_dense_tree(session: &Path, base: &Path) -> Tree {
    read(session, base, true)
}

fn read(session: &Path, base: &Path, is_dense: bool) -> Tree {
    let reader = SpecReader { conn: Connection::open(session).unwrap(), base, is_dense };
    let mut tree = Tree::new();
    reader.read_dir(Some(1), b"", &mut tree);
    tree
}

struct SpecReader<'a> {
    conn: Connection,
    base: &'a Path,
    is_dense: bool,
}

impl SpecReader<'_> {
    /// `ino` is the directory's delta inode, `path` its merged path: empty, or `/a/b`.
    fn read_dir(&self, ino: Option<i64>, path: &[u8], tree: &mut Tree) {
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
        if let Some(ino) = ino {
            names.extend(self.delta_names(ino));
        }
        let base =
            self.base.join(std::ffi::OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
        if base.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            let entries = fs::read_dir(&base).unwrap();
            names.extend(entries.map(|entry| entry.unwrap().file_name().into_vec()));
        }
        for name in names {
            self.read_entry(ino, path, &name, &base.join(std::ffi::OsStr::from_bytes(&name)), tree);
        }
    }

    /// "Overlay Lookup Semantics".
    fn read_entry(
        &self,
        dir: Option<i64>,
        dir_path: &[u8],
        name: &[u8],
        base: &Path,
        tree: &mut Tree,
    ) {
        let path = [dir_path, b"/", name].concat();
        let delta = dir.and_then(|dir| self.dentry(dir, name));
        let object = match delta {
            Some(ino) => self.delta_object(ino),
            None if self.is_whited_out(&path) => return,
            None => base_object(base),
        };
        let is_dir = object.kind == FileKind::Directory;
        tree.insert(path[1..].to_vec(), object);
        if is_dir {
            self.read_dir(delta, &path, tree);
        }
    }

    fn delta_names(&self, ino: i64) -> Vec<Vec<u8>> {
        let sql = "SELECT CAST(name AS BLOB) FROM fs_dentry WHERE parent_ino = ? ORDER BY name ASC";
        let mut statement = self.conn.prepare(sql).unwrap();
        let names = statement.query_map([ino], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    }

    fn dentry(&self, parent: i64, name: &[u8]) -> Option<i64> {
        let sql = "SELECT ino FROM fs_dentry WHERE parent_ino = ? AND CAST(name AS BLOB) = ?";
        self.conn.query_row(sql, params![parent, name], |row| row.get(0)).optional().unwrap()
    }

    fn is_whited_out(&self, path: &[u8]) -> bool {
        let sql = "SELECT 1 FROM fs_whiteout WHERE CAST(path AS BLOB) = ?";
        let found: Option<i64> =
            self.conn.query_row(sql, [path], |row| row.get(0)).optional().unwrap();
        found.is_some()
    }

    fn delta_object(&self, ino: i64) -> Object {
        let sql = "SELECT mode, size FROM fs_inode WHERE ino = ?";
        let (mode, size): (u32, i64) =
            self.conn.query_row(sql, [ino], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let kind = FileKind::from_mode(mode).unwrap();
        let content = match kind {
            FileKind::Regular => self.delta_content(ino, size as u64),
            FileKind::Symlink => {
                let sql = "SELECT CAST(target AS BLOB) FROM fs_symlink WHERE ino = ?";
                self.conn.query_row(sql, [ino], |row| row.get(0)).unwrap()
            }
            _ => Vec::new(),
        };
        Object { kind, mode: mode & 0o7777, content }
    }

    /// By offset, so that a missing chunk reads as zeros; unless all are there.
    fn delta_content(&self, ino: i64, size: u64) -> Vec<u8> {
        if self.is_dense {
            let sql = "SELECT data FROM fs_data WHERE ino = ? ORDER BY chunk_index ASC";
            let mut statement = self.conn.prepare(sql).unwrap();
            let chunks = statement.query_map([ino], |row| row.get::<_, Vec<u8>>(0)).unwrap();
            return chunks.flat_map(Result::unwrap).collect();
        }
        let sql = "SELECT value FROM fs_config WHERE key = 'chunk_size'";
        let chunk: String = self.conn.query_row(sql, [], |row| row.get(0)).unwrap();
        let chunk: usize = chunk.parse().unwrap();
        let mut content = vec![0; size as usize];
        let sql = "SELECT chunk_index, data FROM fs_data WHERE ino = ? ORDER BY chunk_index ASC";
        let mut statement = self.conn.prepare(sql).unwrap();
        let mut rows = statement.query([ino]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let index: usize = row.get::<_, i64>(0).unwrap() as usize;
            let data: Vec<u8> = row.get(1).unwrap();
            content[index * chunk..index * chunk + data.len()].copy_from_slice(&data);
        }
        content
    }
}

fn base_object(path: &Path) -> Object {
    let meta = path.symlink_metadata().unwrap();
    let file_type = meta.file_type();
    let (kind, content) = if file_type.is_dir() {
        (FileKind::Directory, Vec::new())
    } else if file_type.is_symlink() {
        (FileKind::Symlink, fs::read_link(path).unwrap().into_os_string().into_vec())
    } else if file_type.is_file() {
        (FileKind::Regular, fs::read(path).unwrap())
    } else if file_type.is_fifo() {
        (FileKind::Fifo, Vec::new())
    } else {
        (FileKind::Socket, Vec::new())
    };
    Object { kind, mode: meta.mode() & 0o7777, content }
}
