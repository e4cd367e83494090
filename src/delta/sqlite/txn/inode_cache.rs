//! Caches inode rows for the writer.
//!
//! An operation reads the same few rows repeatedly, and the next operation some of them again. The
//! old row also shows which tables a change does not have to touch.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::delta::{Ino, InodeRow};

use super::writer_cache::MAX_KEPT_PATH_BYTES;

/// Capacity, in rows: about 2 MiB, plus the paths of copied-up objects.
const MAX_ROWS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// Rows by inode number; `None` caches that there is no row.
pub(super) struct InodeCache(RefCell<LruCache<Ino, Option<InodeRow>>>);

impl InodeCache {
    pub(super) fn new() -> Self {
        Self(RefCell::new(LruCache::new(MAX_ROWS)))
    }

    /// The cached row of `ino`; the outer `None` if it is not cached.
    pub(super) fn get(&self, ino: Ino) -> Option<Option<InodeRow>> {
        self.0.borrow_mut().get(&ino).cloned()
    }

    /// Whether the row of `ino` is cached and has one link.
    pub(super) fn has_one_name(&self, ino: Ino) -> bool {
        self.0.borrow().peek(&ino).is_some_and(|row| row.as_ref().is_some_and(|row| row.nlink == 1))
    }

    /// Caches the row of `ino`.
    pub(super) fn add(&self, ino: Ino, row: Option<InodeRow>) {
        let origin = row.as_ref().and_then(|row| row.origin.as_ref());
        if origin.is_none_or(|origin| origin.path.as_bytes().len() <= MAX_KEPT_PATH_BYTES) {
            self.0.borrow_mut().put(ino, row);
        }
    }

    /// Removes the row of `ino`, which is about to change, and returns it.
    pub(super) fn take(&self, ino: Ino) -> Option<Option<InodeRow>> {
        self.0.borrow_mut().pop(&ino)
    }

    /// Clears the cache, after a rollback.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BasePath;
    use crate::delta::Origin;
    use crate::vfs::{Device, FileId, FileKind, Time};

    /// A path of `bytes` bytes.
    fn path(bytes: usize) -> Vec<u8> {
        (1..=bytes).map(|at| if at % 200 == 0 { b'/' } else { b'a' }).collect()
    }

    /// A file that was copied up from `path`.
    fn copied_up(path: &[u8]) -> InodeRow {
        let (fileid, time) = (FileId(7), Time { secs: 1, nanos: 2 });
        let path = BasePath::from_bytes(path).unwrap();
        let origin =
            Origin { fileid, path, dev: 1, ino: 2, nlink: 1, size: 0, mtime: time, ctime: time };
        InodeRow {
            ino: Ino(2),
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: Device::default(),
            atime: time,
            mtime: time,
            ctime: time,
            subdirs: None,
            holes: 0,
            create_verifier: None,
            copy_up: None,
            origin: Some(origin),
        }
    }

    #[test]
    fn a_row_with_a_long_path_is_not_kept() {
        for (bytes, kept) in [(MAX_KEPT_PATH_BYTES, true), (MAX_KEPT_PATH_BYTES + 1, false)] {
            let rows = InodeCache::new();
            rows.add(Ino(2), Some(copied_up(&path(bytes))));
            assert_eq!(rows.get(Ino(2)).is_some(), kept, "{bytes}");
        }
    }
}
