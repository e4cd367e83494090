//! What the writer knows not to be there, so that it need not look again with each change.
//!
//! Most directories hide nothing of the base, and hardly any has names that another program
//! stored as BLOB. Nobody but the writer adds whiteouts to a served session, and it stores no
//! name as BLOB that could be TEXT: so what is not there stays away until it says otherwise.

use std::cell::RefCell;
use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;
use rusqlite::Connection;

use crate::delta::{Ino, MergedPath, Result};

use super::writer_cache::MAX_KEPT_PATH_BYTES;
use crate::delta::sqlite::table::{dentry, whiteout};

/// Directories of which each is known.
const MAX_DIRECTORIES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Whether directories may have something, for those that were asked about.
struct Answers<K>(RefCell<LruCache<K, bool>>);

/// What is known of directories.
pub(super) struct NegativeCache {
    whiteouts: Answers<MergedPath>,
    blob_names: Answers<Ino>,
}

impl<K: Eq + Hash> Answers<K> {
    fn new() -> Self {
        Self(RefCell::new(LruCache::new(MAX_DIRECTORIES)))
    }

    /// What was said of `dir`, or is said by `look` now.
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
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self { whiteouts: Answers::new(), blob_names: Answers::new() }
    }

    /// Whether anything below the directory `path` may be whited out, at its first level.
    pub(super) fn may_hide(&self, conn: &Connection, path: MergedPath) -> Result<bool> {
        if path.as_bytes().len() > MAX_KEPT_PATH_BYTES {
            return whiteout::any(conn, &path);
        }
        self.whiteouts.get(path, |path| whiteout::any(conn, path))
    }

    /// Notes that something gets whited out in the directory `path`.
    pub(super) fn hides(&self, path: MergedPath) {
        if path.as_bytes().len() <= MAX_KEPT_PATH_BYTES {
            self.whiteouts.0.borrow_mut().put(path, true);
        }
    }

    /// Notes that anything may be whited out anywhere.
    pub(super) fn may_hide_anything(&self) {
        self.whiteouts.clear();
    }

    /// Whether a directory may have names that are TEXT, and stored as BLOB.
    pub(super) fn may_have_blobs(&self, conn: &Connection, dir: Ino) -> Result<bool> {
        self.blob_names.get(dir, |dir| dentry::any_blob(conn, *dir))
    }

    /// Forgets all: what was changed is rolled back.
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
