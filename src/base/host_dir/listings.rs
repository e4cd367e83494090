//! A bounded cache of listings.
//!
//! A listing is valid as long as its directory is the same object with the same mtime and ctime. A
//! listing read too soon after the directory's last change is not cached: another change in the
//! same tick of the filesystem's clock would not change the times.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use parking_lot::Mutex;

use super::listing::ReadEntries;
use crate::base::{BaseAttr, BasePath, ListedEntry, Listing};
use crate::growing_lru::growing_lru;
use crate::vfs::Time;

/// Maximum size of all listings together, in bytes, without a single larger one.
const CACHE_BYTES: usize = 8 << 20;

/// Maximum size of a cached listing, in bytes: about half a million entries.
const MAX_LISTING_BYTES: usize = 48 << 20;

/// Maximum number of listings.
const MAX_LISTINGS: NonZeroUsize = NonZeroUsize::new(32_768).unwrap();

/// If a directory was changed less than this before the read, another change may leave its times
/// the same: a few ticks of the kernel's coarse clock (10 ms at most).
const TICK: Duration = Duration::from_millis(50);

/// That duration for times without nanoseconds, as coarse filesystems store them (FAT: 2 s).
const COARSE_TICK: Duration = Duration::from_secs(3);

/// The state of a directory; equal stamps mean equal entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirStamp {
    dev: u64,
    ino: u64,
    mtime: Time,
    ctime: Time,
}

impl From<&BaseAttr> for DirStamp {
    fn from(attr: &BaseAttr) -> Self {
        Self { dev: attr.dev, ino: attr.ino, mtime: attr.mtime, ctime: attr.ctime }
    }
}

impl DirStamp {
    /// Whether a change after `now` is certain to change the stamp.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        is_settled(self.mtime.max(self.ctime), now)
    }
}

/// Whether a change after `now` is certain to get another time than `last`, the last change.
pub(super) fn is_settled(last: Time, now: SystemTime) -> bool {
    let tick = if last.nanos == 0 { COARSE_TICK } else { TICK };
    let Ok(now) = now.duration_since(UNIX_EPOCH) else { return false };
    let Ok(secs) = u64::try_from(last.secs) else { return true };
    Duration::new(secs, last.nanos).saturating_add(tick) < now
}

/// The cache.
pub(super) struct HostListingCache(Mutex<Cached>);

struct Cached {
    by_path: LruCache<BasePath, CachedListing>,
    bytes: usize,
    /// The last listing larger than [`CACHE_BYTES`]. It does not count towards that limit.
    large: Option<(BasePath, CachedListing)>,
}

struct CachedListing {
    stamp: DirStamp,
    listing: Arc<Listing>,
    bytes: usize,
}

impl HostListingCache {
    pub(super) fn new() -> Self {
        let by_path = growing_lru(MAX_LISTINGS);
        Self(Mutex::new(Cached { by_path, bytes: 0, large: None }))
    }

    /// The cached listing of the directory `path`, if its state is still `stamp`.
    pub(super) fn get(&self, path: &BasePath, stamp: DirStamp) -> Option<Arc<Listing>> {
        let mut cached = self.lock();
        if let Some((_, kept)) = cached.large.as_ref().filter(|(large, _)| large == path) {
            if kept.stamp == stamp {
                return Some(Arc::clone(&kept.listing));
            }
            cached.large = None;
        }
        match cached.by_path.get(path) {
            Some(kept) if kept.stamp == stamp => Some(Arc::clone(&kept.listing)),
            Some(_) => {
                cached.remove(path);
                None
            }
            None => None,
        }
    }

    /// Caches a listing of `path`, read in the state `stamp`. The caller has checked
    /// [`is_reliable`].
    pub(super) fn put(&self, path: &BasePath, stamp: DirStamp, listing: &Arc<Listing>) {
        let bytes = cost_bytes(path, listing);
        let kept = CachedListing { stamp, listing: Arc::clone(listing), bytes };
        let mut cached = self.lock();
        cached.remove(path);
        if bytes > CACHE_BYTES {
            let old = cached.large.replace((path.clone(), kept));
            drop(cached);
            // Freed here, with the lock released.
            return drop(old);
        }
        cached.bytes += bytes;
        if let Some((_, old)) = cached.by_path.push(path.clone(), kept) {
            cached.bytes -= old.bytes;
        }
        while cached.bytes > CACHE_BYTES && cached.by_path.len() > 1 {
            let Some((_, old)) = cached.by_path.pop_lru() else { break };
            cached.bytes -= old.bytes;
        }
    }

    /// The number of listings.
    pub(super) fn len(&self) -> usize {
        let cached = self.lock();
        cached.by_path.len() + usize::from(cached.large.is_some())
    }

    /// Empties the cache.
    pub(super) fn clear(&self) {
        let mut cached = self.lock();
        cached.by_path.clear();
        cached.bytes = 0;
        cached.large = None;
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Cached> {
        self.0.lock()
    }
}

impl Cached {
    fn remove(&mut self, path: &BasePath) {
        if let Some(old) = self.by_path.pop(path) {
            self.bytes -= old.bytes;
        }
    }
}

/// Whether a listing of `path` that was read from the time `began` on can be cached: the directory
/// did not change during the read, a later change is detectable, and it is not too large. `before`
/// and `after` are the directory's states around the read.
pub(super) fn is_reliable(
    path: &BasePath,
    (before, after): (DirStamp, DirStamp),
    began: SystemTime,
    listing: &Listing,
) -> bool {
    before == after && after.is_settled(began) && cost_bytes(path, listing) <= MAX_LISTING_BYTES
}

/// Approximate memory use of a listing, in bytes.
fn cost_bytes(path: &BasePath, listing: &Listing) -> usize {
    const KEPT_BYTES: usize = 160;
    let entry = |e: &ListedEntry| size_of::<ListedEntry>() + e.name.as_bytes().len();
    KEPT_BYTES + path.as_bytes().len() + listing.entries.iter().map(entry).sum::<usize>()
}

/// The stamps before and after a read; `None` if the host returned an invalid type.
pub(super) fn stamps(root_dev: u64, entries: &ReadEntries) -> Option<(DirStamp, DirStamp)> {
    let stamp = |stat| super::attr::base_attr(root_dev, stat).ok().map(|a| DirStamp::from(&a));
    Some((stamp(&entries.before)?, stamp(&entries.after)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{FileId, Name};

    fn stamp(secs: i64, nanos: u32) -> DirStamp {
        let time = Time { secs, nanos };
        DirStamp { dev: 1, ino: 2, mtime: time, ctime: time }
    }

    fn at(secs: u64, millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(secs) + Duration::from_millis(millis)
    }

    fn of(entries: usize) -> Arc<Listing> {
        let name = Name::new(&[b'n'; 200]).unwrap();
        let entry = ListedEntry { name, fileid: FileId(7), kind: None };
        Arc::new(Listing { entries: vec![entry; entries], turn: None })
    }

    fn path(text: &str) -> BasePath {
        BasePath::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_stamp_is_settled_once_its_tick_is_over() {
        assert!(!stamp(100, 5_000_000).is_settled(at(100, 40)));
        assert!(stamp(100, 5_000_000).is_settled(at(100, 60)));
        assert!(!stamp(100, 0).is_settled(at(102, 900)), "a coarse clock");
        assert!(stamp(100, 0).is_settled(at(103, 100)));
        assert!(!stamp(200, 1).is_settled(at(100, 0)), "a time in the future");
    }

    #[test]
    fn keeps_only_what_can_be_relied_on() {
        let cache = HostListingCache::new();
        let (old, new) = (stamp(1, 1), stamp(2, 2));
        let reliable =
            |stamps, began, entries| is_reliable(&path("d"), stamps, began, &of(entries));
        assert!(!reliable((old, new), at(9, 0), 1), "torn");
        assert!(!reliable((new, new), at(2, 0), 1), "fresh");
        assert!(!reliable((new, new), at(9, 0), MAX_LISTING_BYTES / 200), "too large");
        assert!(reliable((new, new), at(9, 0), 1));
        cache.put(&path("d"), new, &of(1));
        assert!(cache.get(&path("d"), new).is_some());
        assert!(cache.get(&path("d"), old).is_none(), "another state");
        assert!(cache.get(&path("d"), new).is_none(), "and it was forgotten");
    }

    #[test]
    fn a_large_one_and_the_small_ones_leave_each_other_in_place() {
        let cache = HostListingCache::new();
        let (stamp, many) = (stamp(1, 1), CACHE_BYTES / 200);
        cache.put(&path("small"), stamp, &of(1));
        cache.put(&path("large"), stamp, &of(many));
        cache.put(&path("small too"), stamp, &of(1));
        for kept in ["small", "large", "small too", "large"] {
            assert!(cache.get(&path(kept), stamp).is_some(), "{kept}");
        }
        cache.put(&path("larger"), stamp, &of(many + 1));
        assert!(cache.get(&path("large"), stamp).is_none(), "there is one at a time");
        assert!(cache.get(&path("larger"), super::tests::stamp(2, 2)).is_none(), "it changed");
        assert!(cache.get(&path("larger"), stamp).is_none(), "and was forgotten");
    }

    #[test]
    fn stays_within_its_bytes() {
        let cache = HostListingCache::new();
        let stamp = stamp(1, 1);
        for n in 0..100 {
            cache.put(&path(&format!("d{n}")), stamp, &of(4096));
        }
        let cached = cache.lock();
        assert!(cached.bytes <= CACHE_BYTES);
        assert!(cached.by_path.len() > 4);
        assert_eq!(cached.bytes, cached.by_path.iter().map(|(_, k)| k.bytes).sum::<usize>());
    }
}
