//! Cache of directory listings that readers share: the last listing of each directory, for its
//! later pages and for other listings.
//!
//! A listing must include every change that was acknowledged before the listing began. Its later
//! pages come from the cached listing, so that one must include these changes too. Several threads
//! build listings of one directory concurrently, and the first to begin may finish last. Therefore
//! a listing never replaces one that is complete as of a later moment, even if that one was evicted
//! in between. A listing that may not be cached is rebuilt for each page.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::{ListingLock, ListingLockGuard};
use crate::counters::Cache;
use crate::growing_lru::growing_lru;
use crate::vfs::{FileId, Name};

use super::limits::{
    LARGE_LISTING_WAIT, MAX_LARGE_SNAPSHOT_BYTES, MAX_SNAPSHOT_BYTES, MAX_SNAPSHOTS,
};
use super::snapshot::{DirChange, DirSnapshot, DirState};

/// Limits that sessions share: one large listing is built at a time, and one is cached.
#[derive(Default)]
pub struct LargeListings {
    turn: Arc<ListingLock>,
    /// The session and the directory of the cached large listing.
    kept: Mutex<Option<(Weak<Mutex<ListingParts>>, FileId)>>,
}

/// The last listing of each directory, bounded in number and bytes.
pub(super) struct ListingCache {
    parts: Arc<Mutex<ListingParts>>,
    large: Arc<LargeListings>,
}

struct ListingParts {
    kept: LruCache<FileId, KeptListing>,
    /// Directories with pages under construction.
    in_progress: HashMap<FileId, UnfinishedListing>,
}

/// A cached listing.
struct KeptListing {
    /// The listing includes every change that was acknowledged before this moment.
    as_of: Instant,
    snapshot: Arc<DirSnapshot>,
}

/// Pages of one directory that are under construction.
#[derive(Default)]
struct UnfinishedListing {
    pages: usize,
    /// The latest `as_of` of a listing that was evicted since the first of these pages began.
    lost: Option<Instant>,
}

/// A page of a listing, from before its snapshot is taken until the page is complete.
pub(super) struct Page {
    listings: Arc<Mutex<ListingParts>>,
    large: Arc<LargeListings>,
    dir: FileId,
    since: Instant,
}

/// A cached listing of a directory.
pub(super) struct FoundListing {
    pub snapshot: Arc<DirSnapshot>,
    /// Whether the directory's state is unchanged since the listing was built.
    pub is_current: bool,
    /// Upper bound on the time since the listing was last known to be current.
    pub age: Duration,
}

fn lock(parts: &Mutex<ListingParts>) -> MutexGuard<'_, ListingParts> {
    parts.lock()
}

impl LargeListings {
    /// Makes this the one cached large listing and evicts the previous one. Must not be called with
    /// any session's parts locked.
    fn replace(&self, parts: &Arc<Mutex<ListingParts>>, dir: FileId) {
        let mine = (Arc::downgrade(parts), dir);
        let mut kept = self.kept.lock();
        let Some((other, other_dir)) = kept.replace(mine) else { return };
        let is_same = other.ptr_eq(&Arc::downgrade(parts)) && other_dir == dir;
        if let Some(other) = other.upgrade().filter(|_| !is_same) {
            lock(&other).drop_large(other_dir);
        }
    }
}

impl ListingCache {
    pub fn new(large: Arc<LargeListings>) -> Self {
        let kept = growing_lru(MAX_SNAPSHOTS);
        let parts = Arc::new(Mutex::new(ListingParts { kept, in_progress: HashMap::new() }));
        Self { parts, large }
    }

    /// The number of cached listings.
    pub fn len(&self) -> usize {
        lock(&self.parts).kept.len()
    }

    /// Begins a page. Must be called before the read transaction of the page starts.
    pub fn begin(&self, dir: FileId) -> Page {
        lock(&self.parts).in_progress.entry(dir).or_default().pages += 1;
        let (listings, large) = (Arc::clone(&self.parts), Arc::clone(&self.large));
        Page { listings, large, dir, since: Instant::now() }
    }

    /// Applies a change to the cached listing, if that listing has the state before the change.
    /// Otherwise the listing keeps its own state.
    pub fn apply(&self, dir: FileId, change: &DirChange) {
        if let Some(kept) = lock(&self.parts).kept.peek_mut(&dir)
            && kept.snapshot.precedes(change)
        {
            Arc::make_mut(&mut kept.snapshot).apply(change);
        }
    }

    /// Marks the source of an entry as unknown.
    pub fn forget_source(&self, dir: FileId, name: &Name) {
        if let Some(kept) = lock(&self.parts).kept.peek_mut(&dir)
            && kept.snapshot.knows(name)
        {
            Arc::make_mut(&mut kept.snapshot).doubt(name);
        }
    }

    /// Evicts all listings; pages under construction may not be cached either.
    pub fn clear(&self) {
        let mut parts = lock(&self.parts);
        parts.kept.clear();
        let now = Instant::now();
        parts.in_progress.values_mut().for_each(|begun| begun.lost = Some(now));
    }
}

impl Page {
    /// The cached listing of the directory, which is in `state`.
    pub fn find(&self, state: &DirState) -> Option<FoundListing> {
        let mut parts = lock(&self.listings);
        let kept = Cache::Listings.count(parts.kept.get_mut(&self.dir))?;
        let is_current = kept.snapshot.state() == *state;
        if is_current && kept.snapshot.is_certain {
            kept.as_of = kept.as_of.max(self.since);
        }
        let snapshot = Arc::clone(&kept.snapshot);
        Some(FoundListing { snapshot, is_current, age: kept.as_of.elapsed() })
    }

    /// Waits for the permit to build a large listing; `None` after [`LARGE_LISTING_WAIT`].
    pub fn lock_listing(&self) -> Option<ListingLockGuard> {
        self.large.turn.take(LARGE_LISTING_WAIT)
    }

    /// Caches the listing that was built for this page, unless a later one is or was cached.
    /// `is_settled` returns whether no commit has happened since the snapshot.
    pub fn keep(&self, snapshot: &mut Arc<DirSnapshot>, is_settled: impl FnOnce() -> bool) {
        let mut parts = lock(&self.listings);
        // Evaluated under the lock: a commit after this point updates the cached listing.
        Arc::make_mut(snapshot).is_settled = is_settled();
        let kept = parts.kept.peek(&self.dir).map(|kept| kept.as_of);
        let lost = parts.in_progress.get(&self.dir).and_then(|begun| begun.lost);
        let bytes = snapshot.bytes();
        if kept.max(lost).is_some_and(|as_of| as_of > self.since)
            || bytes > MAX_LARGE_SNAPSHOT_BYTES
        {
            return;
        }
        let kept = KeptListing { as_of: self.since, snapshot: Arc::clone(snapshot) };
        if let Some((dir, kept)) = parts.kept.push(self.dir, kept) {
            parts.note_eviction(dir, kept.as_of);
        }
        parts.make_room();
        drop(parts);
        if bytes > MAX_SNAPSHOT_BYTES {
            self.large.replace(&self.listings, self.dir);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut parts = lock(&self.listings);
        if let Some(begun) = parts.in_progress.get_mut(&self.dir) {
            begun.pages -= 1;
            if begun.pages == 0 {
                parts.in_progress.remove(&self.dir);
            }
        }
    }
}

impl ListingParts {
    /// Records the `as_of` of an evicted listing for the pages that began before the eviction.
    fn note_eviction(&mut self, dir: FileId, as_of: Instant) {
        if let Some(begun) = self.in_progress.get_mut(&dir) {
            begun.lost = begun.lost.max(Some(as_of));
        }
    }

    /// Evicts least recently used listings until the rest fits [`MAX_SNAPSHOT_BYTES`]. Large
    /// listings are not counted: [`LargeListings`] bounds them.
    fn make_room(&mut self) {
        let small = |kept: &KeptListing| {
            Some(kept.snapshot.bytes()).filter(|bytes| *bytes <= MAX_SNAPSHOT_BYTES).unwrap_or(0)
        };
        let mut bytes: usize = self.kept.iter().map(|(_, kept)| small(kept)).sum();
        while bytes > MAX_SNAPSHOT_BYTES {
            let oldest = self.kept.iter().rev().find(|(_, kept)| small(kept) > 0);
            let Some(dir) = oldest.map(|(dir, _)| *dir) else { return };
            if let Some(kept) = self.kept.pop(&dir) {
                bytes -= small(&kept);
                self.note_eviction(dir, kept.as_of);
            }
        }
    }

    /// Evicts the listing of a directory, if it is large.
    fn drop_large(&mut self, dir: FileId) {
        let is_large = |kept: &KeptListing| kept.snapshot.bytes() > MAX_SNAPSHOT_BYTES;
        if self.kept.peek(&dir).is_some_and(is_large)
            && let Some(kept) = self.kept.pop(&dir)
        {
            self.note_eviction(dir, kept.as_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{EntrySource, SnapshotEntry};
    use super::*;
    use crate::vfs::{Cookie, Time};

    const DIR: FileId = FileId(7);

    fn at(nanos: u32) -> Time {
        Time { secs: 1, nanos }
    }

    fn state(delta: u32) -> DirState {
        DirState { delta: Some(at(delta)), base: None }
    }

    fn new() -> ListingCache {
        ListingCache::new(Arc::default())
    }

    /// A listing with one entry, in the state `delta`.
    fn listing(delta: u32, name: &str) -> Arc<DirSnapshot> {
        let name = Name::new(name.as_bytes()).unwrap();
        let entry = SnapshotEntry { name, fileid: FileId(8), source: EntrySource::Base };
        Arc::new(DirSnapshot::new(state(delta), 1, vec![entry]))
    }

    fn keep(page: &Page, delta: u32, name: &str) {
        page.keep(&mut listing(delta, name), || true);
    }

    /// The name of the entry in the cached listing.
    fn kept(listings: &ListingCache) -> Option<String> {
        let found = listings.begin(DIR).find(&state(0))?;
        let (_, entry) = found.snapshot.after(Cookie(0)).next()?;
        Some(String::from_utf8_lossy(entry.name.as_bytes()).into_owned())
    }

    #[test]
    fn another_base_directory_with_the_same_number_and_times_is_another_state() {
        let state = |id| DirState { delta: None, base: Some((FileId(id), at(1), at(1))) };
        let listings = new();
        listings.begin(DIR).keep(&mut Arc::new(DirSnapshot::new(state(7), 1, Vec::new())), || true);
        assert!(listings.begin(DIR).find(&state(7)).unwrap().is_current);
        assert!(!listings.begin(DIR).find(&state(8)).unwrap().is_current);
    }

    #[test]
    fn who_lists_slowly_does_not_replace_what_was_begun_later() {
        // Also if both listings see the same directory state.
        for delta in [4, 5] {
            let listings = new();
            let (slow, quick) = (listings.begin(DIR), listings.begin(DIR));
            keep(&quick, 5, "quick");
            keep(&slow, delta, "slow");
            assert_eq!(kept(&listings).as_deref(), Some("quick"));
            keep(&listings.begin(DIR), 6, "next");
            assert_eq!(kept(&listings).as_deref(), Some("next"));
        }
    }

    #[test]
    fn nor_what_was_found_to_be_current_since() {
        for (is_certain, stays) in [(true, "kept"), (false, "slow")] {
            let listings = new();
            let mut first = listing(5, "kept");
            Arc::make_mut(&mut first).is_certain = is_certain;
            listings.begin(DIR).keep(&mut first, || true);
            let (slow, quick) = (listings.begin(DIR), listings.begin(DIR));
            assert!(quick.find(&state(5)).unwrap().is_current);
            keep(&slow, 4, "slow");
            assert_eq!(kept(&listings).as_deref(), Some(stays));
        }
    }

    #[test]
    fn nor_what_was_let_go_of_meanwhile() {
        let listings = new();
        let (slow, quick) = (listings.begin(DIR), listings.begin(DIR));
        keep(&quick, 5, "quick");
        for other in 0..MAX_SNAPSHOTS.get() as u64 {
            keep(&listings.begin(FileId(100 + other)), 1, "other");
        }
        assert_eq!(kept(&listings), None);
        keep(&slow, 4, "slow");
        assert_eq!(kept(&listings), None);
        // `clear` counts as later than every page under construction.
        let late = listings.begin(DIR);
        listings.clear();
        keep(&late, 6, "late");
        assert_eq!(kept(&listings), None);
        keep(&listings.begin(DIR), 6, "next");
        assert_eq!(kept(&listings).as_deref(), Some("next"));
        drop((slow, quick, late));
        assert!(lock(&listings.parts).in_progress.is_empty());
    }

    /// Caches a listing with this many entries.
    fn keep_many(listings: &ListingCache, dir: FileId, entries: usize) {
        let name = |number: usize| Name::new(format!("{number:0200}").as_bytes()).unwrap();
        let entry = |number| SnapshotEntry {
            name: name(number),
            fileid: FileId(8),
            source: EntrySource::Base,
        };
        let snapshot = DirSnapshot::new(state(1), 1, (0..entries).map(entry).collect());
        listings.begin(dir).keep(&mut Arc::new(snapshot), || true);
    }

    fn is_kept(listings: &ListingCache, dir: FileId) -> bool {
        listings.begin(dir).find(&state(1)).is_some()
    }

    /// Number of entries that takes more than half of [`MAX_SNAPSHOT_BYTES`].
    const HALF: usize = MAX_SNAPSHOT_BYTES / 264 / 2 + 1000;

    #[test]
    fn room_is_made_by_those_that_were_not_used_for_longest() {
        let listings = new();
        keep(&listings.begin(DIR), 1, "small");
        keep_many(&listings, FileId(8), HALF);
        assert_eq!(kept(&listings).as_deref(), Some("small"));
        keep_many(&listings, FileId(9), HALF);
        assert!(!is_kept(&listings, FileId(8)) && is_kept(&listings, FileId(9)));
        assert_eq!(kept(&listings).as_deref(), Some("small"), "it was used since");
    }

    #[test]
    fn of_large_ones_all_sessions_keep_one() {
        let large = Arc::new(LargeListings::default());
        let [one, two] = [(); 2].map(|()| ListingCache::new(Arc::clone(&large)));
        keep(&one.begin(DIR), 1, "small");
        keep_many(&one, FileId(8), 2 * HALF);
        assert!(is_kept(&one, FileId(8)) && is_kept(&one, DIR));
        keep_many(&one, FileId(8), 2 * HALF);
        assert!(is_kept(&one, FileId(8)), "it takes its own place");
        keep_many(&two, FileId(8), 2 * HALF);
        assert!(!is_kept(&one, FileId(8)) && is_kept(&one, DIR) && is_kept(&two, FileId(8)));
        keep_many(&two, FileId(9), 2 * HALF);
        assert!(!is_kept(&two, FileId(8)) && is_kept(&two, FileId(9)));
        let pages = [one.begin(DIR), two.begin(DIR)];
        let turn = pages[0].lock_listing();
        assert!(turn.is_some() && large.turn.take(Duration::ZERO).is_none());
    }

    #[test]
    fn what_a_change_does_not_follow_stays_as_it_is() {
        let listings = new();
        let change = |before, name: &str| DirChange {
            before: at(before),
            after: at(before + 1),
            names: vec![(Name::new(name.as_bytes()).unwrap(), None)],
        };
        keep(&listings.begin(DIR), 5, "kept");
        for before in [4, 6] {
            listings.apply(DIR, &change(before, "kept"));
            assert_eq!(kept(&listings).as_deref(), Some("kept"));
        }
        listings.apply(DIR, &change(5, "kept"));
        assert_eq!(kept(&listings), None);
        assert!(listings.begin(DIR).find(&state(6)).unwrap().is_current);
    }
}
