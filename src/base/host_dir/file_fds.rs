//! A bounded cache of open files.
//!
//! A descriptor is valid as long as its path leads to the same object. [`OpenFile::is_fresh`]
//! checks that with the descriptor alone: replacing, removing or renaming a file changes its ctime.
//! Renaming an ancestor does not, so the path is walked again after [`TRUSTED_FOR`] in any case.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, getrlimit};

use crate::base::{BaseAttr, BasePath};
use crate::counters::Cache;
use crate::growing_lru::growing_lru;
use crate::vfs::{FileId, Time};

/// Maximum number of open files, whatever the process's limit is.
const MAX_OPEN_FILES: u64 = 128;

/// Divisor for the part of the process's descriptor limit that this cache may use; the rest is for
/// sockets and the session.
const SHARE_OF_LIMIT: u64 = 4;

/// How long a path is assumed to lead to the same object.
pub(super) const TRUSTED_FOR: Duration = Duration::from_millis(20);

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// Its descriptor; the file offset is not used.
    pub fd: OwnedFd,
    /// Its file number.
    pub fileid: FileId,
    seen: Mutex<SeenFile>,
}

#[derive(Debug, Clone, Copy)]
struct SeenFile {
    at: Instant,
    ctime: Time,
}

impl OpenFile {
    /// A file whose path was just walked; `attr` comes from the descriptor.
    pub(super) fn new(fd: OwnedFd, attr: &BaseAttr) -> Self {
        let seen = SeenFile { at: Instant::now(), ctime: attr.ctime };
        Self { fd, fileid: attr.fileid, seen: Mutex::new(seen) }
    }

    /// Whether the path still leads here, judged by `attr` from the descriptor.
    pub(super) fn is_fresh(&self, attr: &BaseAttr) -> bool {
        let seen = *lock(&self.seen);
        attr.nlink > 0 && attr.ctime == seen.ctime && seen.at.elapsed() < TRUSTED_FOR
    }

    /// Records that the path was walked and still leads here.
    pub(super) fn confirm(&self, attr: &BaseAttr) {
        *lock(&self.seen) = SeenFile { at: Instant::now(), ctime: attr.ctime };
    }
}

/// The cache: open files by path, LRU.
#[derive(Debug)]
pub(super) struct FileFds(Mutex<LruCache<BasePath, Arc<OpenFile>>>);

impl FileFds {
    /// An empty cache, with a capacity derived from the process's limit.
    pub(super) fn new() -> Self {
        Self(Mutex::new(growing_lru(share_of_limit(SHARE_OF_LIMIT, MAX_OPEN_FILES))))
    }

    /// The cached file of `path`.
    pub(super) fn get(&self, path: &BasePath) -> Option<Arc<OpenFile>> {
        Cache::BaseFiles.count(lock(&self.0).get(path).cloned())
    }

    /// The number of open files.
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Caches `file` for `path`.
    pub(super) fn put(&self, path: &BasePath, file: Arc<OpenFile>) {
        let evicted = lock(&self.0).push(path.clone(), file);
        // Closed here, with the lock released.
        drop(evicted);
    }

    /// Closes the file of `path`, if it is still `file`.
    pub(super) fn forget(&self, path: &BasePath, file: &Arc<OpenFile>) {
        let mut files = lock(&self.0);
        let is_same = files.peek(path).is_some_and(|f| Arc::ptr_eq(f, file));
        let gone = if is_same { files.pop(path) } else { None };
        drop(files);
        drop(gone);
    }

    /// Empties the cache; files that are being read are closed afterwards.
    pub(super) fn clear(&self) {
        drop(self.take());
    }

    /// Empties the cache; returns its files, which the caller closes: that may block.
    #[must_use]
    pub(super) fn take(&self) -> Vec<Arc<OpenFile>> {
        let mut files = lock(&self.0);
        std::iter::from_fn(|| Some(files.pop_lru()?.1)).collect()
    }
}

/// The process's descriptor limit divided by `divisor`, at most `most`.
pub(super) fn share_of_limit(divisor: u64, most: u64) -> NonZeroUsize {
    capacity(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), divisor, most)
}

/// The capacity of a cache, for a process limit of `limit` descriptors.
pub(super) fn capacity(limit: u64, divisor: u64, most: u64) -> NonZeroUsize {
    let files = (limit / divisor).min(most);
    usize::try_from(files).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_quarter_of_the_limit_and_never_many() {
        let of = |limit| capacity(limit, SHARE_OF_LIMIT, MAX_OPEN_FILES).get();
        assert_eq!((of(0), of(3), of(256), of(1024), of(u64::MAX)), (1, 1, 64, 128, 128));
    }
}
