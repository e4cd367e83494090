//! A bounded cache of open directories, to look at their entries by name.
//!
//! With its directory at hand, looking at an object takes one call instead of three. A directory
//! stays right as long as its path leads to it: it is walked to anew after [`TRUSTED_FOR`].

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::file_fds::{TRUSTED_FOR, share_of_limit};
use crate::base::{BaseAttr, BasePath};
use crate::vfs::Time;

/// Open directories at most, however many descriptors the process may have.
const MAX_OPEN_DIRS: u64 = 64;

/// The part of the process's descriptors that may be ours, as a divisor.
const SHARE_OF_LIMIT: u64 = 16;

/// A directory, open as a place to look from.
#[derive(Debug)]
pub(super) struct Anchor {
    /// Its descriptor (O_PATH).
    pub fd: OwnedFd,
    /// Whether only the spelling that a listing has leads here, and to what is in it.
    pub is_exact: bool,
    walked: Instant,
    ctime: Time,
}

impl Anchor {
    /// A directory whose path was just walked; `attr` is from the descriptor.
    pub(super) fn new(fd: OwnedFd, attr: &BaseAttr, is_exact: bool) -> Self {
        Self { fd, is_exact, walked: Instant::now(), ctime: attr.ctime }
    }

    /// Whether the directory's own path leads here still, judged by `attr` from the descriptor:
    /// a directory that is moved or removed changes.
    pub(super) fn is_in_place(&self, attr: &BaseAttr) -> bool {
        attr.nlink > 0 && attr.ctime == self.ctime
    }
}

/// The cache: directories by path, the least recently used one is closed first.
pub(super) struct Anchors(Mutex<LruCache<BasePath, Arc<Anchor>>>);

impl Anchors {
    /// As many as the process's limit allows for.
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(share_of_limit(SHARE_OF_LIMIT, MAX_OPEN_DIRS))))
    }

    /// The directory that was opened for `path`, if that was only just.
    pub(super) fn get(&self, path: &[u8]) -> Option<Arc<Anchor>> {
        let mut anchors = self.lock();
        let anchor = anchors.get(path)?;
        (anchor.walked.elapsed() < TRUSTED_FOR).then(|| Arc::clone(anchor))
    }

    /// Keeps `anchor` for `path`.
    pub(super) fn put(&self, path: BasePath, anchor: Arc<Anchor>) {
        let evicted = self.lock().push(path, anchor);
        // Closed here, with the lock released.
        drop(evicted);
    }

    /// Closes all that nobody looks from.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<BasePath, Arc<Anchor>>> {
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
