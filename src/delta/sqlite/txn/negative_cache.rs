//! Caches for the writer which directories have no whiteouts and no BLOB names.
//!
//! Most directories have no whiteout, and hardly any has a name that another program stored as
//! BLOB. In a served session only the writer adds whiteouts, and it stores no name as BLOB that can
//! be TEXT. So a negative entry stays valid until the writer adds a row, or a rollback clears the
//! cache.

use std::cell::RefCell;
use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;
use rusqlite::Connection;

use crate::delta::{Ino, MergedPath, Result};

use crate::delta::sqlite::table::{dentry, whiteout};
use crate::growing_lru::growing_lru;

/// Longest path that is cached, in bytes; longer ones are queried each time.
const MAX_KEPT_PATH_BYTES: usize = 512;

/// Capacity of each cache, in directories.
const MAX_DIRECTORIES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Cached answers by directory: whether it may have such rows.
struct Answers<K>(RefCell<LruCache<K, bool>>);

/// The two caches.
pub(super) struct NegativeCache {
    whiteouts: Answers<MergedPath>,
    blob_names: Answers<Ino>,
}

impl<K: Eq + Hash> Answers<K> {
    fn new() -> Self {
        Self(RefCell::new(growing_lru(MAX_DIRECTORIES)))
    }

    /// The cached answer for `dir`, or that of `look`, which is then cached.
    fn get(&self, dir: K, look: impl FnOnce(&K) -> Result<bool>) -> Result<bool> {
        if let Some(known) = self.0.borrow_mut().get(&dir) {
            return Ok(*known);
        }
        let found = look(&dir)?;
        self.0.borrow_mut().put(dir, found);
        Ok(found)
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl NegativeCache {
    pub(super) fn new() -> Self {
        Self { whiteouts: Answers::new(), blob_names: Answers::new() }
    }

    /// Whether a name may be whited out directly below the directory `path`.
    pub(super) fn may_hide(&self, conn: &Connection, path: MergedPath) -> Result<bool> {
        if path.as_bytes().len() > MAX_KEPT_PATH_BYTES {
            return whiteout::any(conn, &path);
        }
        self.whiteouts.get(path, |path| whiteout::any(conn, path))
    }

    /// Records that a name is whited out directly below the directory `path`.
    pub(super) fn hides(&self, path: MergedPath) {
        if path.as_bytes().len() <= MAX_KEPT_PATH_BYTES {
            self.whiteouts.0.borrow_mut().put(path, true);
        }
    }

    /// Clears the whiteout cache: any path may be whited out now.
    pub(super) fn may_hide_anything(&self) {
        self.whiteouts.clear();
    }

    /// Whether a directory may have names that could be TEXT but are stored as BLOB.
    pub(super) fn may_have_blobs(&self, conn: &Connection, dir: Ino) -> Result<bool> {
        self.blob_names.get(dir, |dir| dentry::any_blob(conn, *dir))
    }

    /// Clears both caches, after a rollback.
    pub(super) fn clear(&self) {
        self.whiteouts.clear();
        self.blob_names.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_not_kept() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE fs_whiteout (path TEXT PRIMARY KEY, parent_path TEXT)")
            .unwrap();
        for (bytes, kept) in [(MAX_KEPT_PATH_BYTES, 1), (MAX_KEPT_PATH_BYTES + 1, 0)] {
            let text: Vec<u8> =
                (0..bytes).map(|at| if at % 200 == 0 { b'/' } else { b'a' }).collect();
            let dir = MergedPath::from_bytes(&text).unwrap();
            let absent = NegativeCache::new();
            assert!(!absent.may_hide(&conn, dir.clone()).unwrap());
            assert_eq!(absent.whiteouts.0.borrow().len(), kept, "{bytes}, asked");
            absent.clear();
            absent.hides(dir);
            assert_eq!(absent.whiteouts.0.borrow().len(), kept, "{bytes}, whited out");
        }
    }
}
