//! A bounded cache of open files.
//!
//! A descriptor stays right as long as its path leads to the same object. [`OpenFile::is_fresh`]
//! tells from the descriptor alone that this cannot have changed: replacing, removing or
//! renaming a file moves its ctime. Only a rename of a directory above it does not, so that the
//! path is walked anew after [`TRUSTED_FOR`] in any case.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, getrlimit};

use crate::base::{BaseAttr, BasePath};
use crate::vfs::{FileId, Time};

/// Open files at most, however many the process may have.
const MAX_OPEN_FILES: u64 = 128;

/// The part of the process's descriptors that may be ours, as a divisor: the rest is for
/// sockets and the session.
const SHARE_OF_LIMIT: u64 = 4;

/// How long a path is taken to lead where it led.
pub(super) const TRUSTED_FOR: Duration = Duration::from_millis(20);

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// Its descriptor; the file offset is nobody's.
    pub fd: OwnedFd,
    /// Its number.
    pub fileid: FileId,
    seen: Mutex<SeenFile>,
}

#[derive(Debug, Clone, Copy)]
struct SeenFile {
    at: Instant,
    ctime: Time,
}

impl OpenFile {
    /// A file whose path was just walked; `attr` is from the descriptor.
    pub(super) fn new(fd: OwnedFd, attr: &BaseAttr) -> Self {
        let seen = SeenFile { at: Instant::now(), ctime: attr.ctime };
        Self { fd, fileid: attr.fileid, seen: Mutex::new(seen) }
    }

    /// Whether the path leads here still, judged by `attr` from the descriptor.
    pub(super) fn is_fresh(&self, attr: &BaseAttr) -> bool {
        let seen = *lock(&self.seen);
        attr.nlink > 0 && attr.ctime == seen.ctime && seen.at.elapsed() < TRUSTED_FOR
    }

    /// Notes that the path was walked and led here.
    pub(super) fn confirm(&self, attr: &BaseAttr) {
        *lock(&self.seen) = SeenFile { at: Instant::now(), ctime: attr.ctime };
    }
}

/// The cache: open files by path, the least recently used one is closed first.
#[derive(Debug)]
pub(super) struct Descriptors(Mutex<LruCache<BasePath, Arc<OpenFile>>>);

impl Descriptors {
    /// As many as the process's limit allows for.
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(share_of_limit(SHARE_OF_LIMIT, MAX_OPEN_FILES))))
    }

    /// The file that was opened for `path`.
    pub(super) fn get(&self, path: &BasePath) -> Option<Arc<OpenFile>> {
        lock(&self.0).get(path).cloned()
    }

    /// Keeps `file` for `path`.
    pub(super) fn put(&self, path: &BasePath, file: Arc<OpenFile>) {
        let evicted = lock(&self.0).push(path.clone(), file);
        // Closed here, with the lock released.
        drop(evicted);
    }

    /// Closes the file of `path`, if `file` is still the one.
    pub(super) fn forget(&self, path: &BasePath, file: &Arc<OpenFile>) {
        let mut files = lock(&self.0);
        let is_same = files.peek(path).is_some_and(|f| Arc::ptr_eq(f, file));
        let gone = if is_same { files.pop(path) } else { None };
        drop(files);
        drop(gone);
    }

    /// Closes all that are not being read from.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// A part of the descriptors that the process may have, and `most` at most.
pub(super) fn share_of_limit(divisor: u64, most: u64) -> NonZeroUsize {
    capacity(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), divisor, most)
}

/// The size of a cache under a limit of `limit` descriptors for the process.
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
