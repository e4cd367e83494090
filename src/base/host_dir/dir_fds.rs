//! A bounded cache of open directories, to look at their entries by name.
//!
//! With its directory open, looking at an object takes one call instead of three. A directory is
//! valid as long as its path leads to it; it is walked again after [`TRUSTED_FOR`].

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::file_fds::{TRUSTED_FOR, share_of_limit};
use crate::base::{BaseAttr, BasePath};
use crate::counters::Cache;
use crate::growing_lru::growing_lru;
use crate::vfs::Time;

/// Maximum number of open directories, whatever the process's limit is.
const MAX_OPEN_DIRS: u64 = 64;

/// Divisor for the part of the process's descriptor limit that this cache may use.
const SHARE_OF_LIMIT: u64 = 16;

/// A directory that is open for `*at` calls.
#[derive(Debug)]
pub(super) struct OpenDir {
    /// Its descriptor (O_PATH).
    pub fd: OwnedFd,
    /// Whether names here, and those of its path, are matched byte for byte, without folding.
    pub is_exact: bool,
    walked: Instant,
    ctime: Time,
}

impl OpenDir {
    /// A directory whose path was just walked; `attr` comes from the descriptor.
    pub(super) fn new(fd: OwnedFd, attr: &BaseAttr, is_exact: bool) -> Self {
        Self { fd, is_exact, walked: Instant::now(), ctime: attr.ctime }
    }

    /// Whether the directory's own path still leads here, judged by `attr` from the descriptor:
    /// moving or removing a directory changes its ctime or link count.
    pub(super) fn is_in_place(&self, attr: &BaseAttr) -> bool {
        attr.nlink > 0 && attr.ctime == self.ctime
    }
}

/// The cache: directories by path, LRU.
pub(super) struct DirFds(Mutex<LruCache<BasePath, Arc<OpenDir>>>);

impl DirFds {
    /// An empty cache, with a capacity derived from the process's limit.
    pub(super) fn new() -> Self {
        Self(Mutex::new(growing_lru(share_of_limit(SHARE_OF_LIMIT, MAX_OPEN_DIRS))))
    }

    /// The cached directory of `path`, if it was walked within [`TRUSTED_FOR`].
    pub(super) fn get(&self, path: &[u8]) -> Option<Arc<OpenDir>> {
        let mut open_dirs = self.lock();
        let open_dir = open_dirs.get(path);
        let trusted = open_dir.filter(|open_dir| open_dir.walked.elapsed() < TRUSTED_FOR);
        Cache::BaseDirs.count(trusted.map(Arc::clone))
    }

    /// The number of open directories.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Caches `open_dir` for `path`.
    pub(super) fn put(&self, path: BasePath, open_dir: Arc<OpenDir>) {
        let evicted = self.lock().push(path, open_dir);
        // Closed here, with the lock released.
        drop(evicted);
    }

    /// Empties the cache; directories in use are closed afterwards.
    pub(super) fn clear(&self) {
        drop(self.take());
    }

    /// Empties the cache; returns its directories, which the caller closes: that may block.
    #[must_use]
    pub(super) fn take(&self) -> Vec<Arc<OpenDir>> {
        let mut open_dirs = self.lock();
        std::iter::from_fn(|| Some(open_dirs.pop_lru()?.1)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<BasePath, Arc<OpenDir>>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_fds::capacity;
    use super::*;

    #[test]
    fn takes_a_sixteenth_of_the_limit() {
        let of = |limit| capacity(limit, SHARE_OF_LIMIT, MAX_OPEN_DIRS).get();
        assert_eq!((of(0), of(256), of(1024), of(u64::MAX)), (1, 16, 64, 64));
    }
}
