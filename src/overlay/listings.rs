//! The listings that readers share: of each directory the last one, for its later pages and for
//! other listings.
//!
//! A listing holds all that was answered before it was begun. Its later pages come from what is
//! kept by then, and must hold that as well. But listings are made at the same time, and who
//! begins first may end last: so nothing takes the place of what is known to be complete as of a
//! later moment, also if that was let go of meanwhile. Whoever may keep nothing has each page
//! collect its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::vfs::{FileId, Name};

use super::limits::{MAX_SNAPSHOT_ENTRIES, MAX_SNAPSHOTS};
use super::snapshot::{DirChange, DirState, Snapshot};

/// The last listing of each directory; bounded.
pub(super) struct Listings(Arc<Mutex<Parts>>);

struct Parts {
    kept: LruCache<FileId, Kept>,
    /// Directories of which a page is being made.
    begun: HashMap<FileId, Begun>,
}

/// A listing that is kept.
struct Kept {
    /// It holds all that was answered before this moment.
    as_of: Instant,
    snapshot: Arc<Snapshot>,
}

/// Pages that are being made of one directory.
#[derive(Default)]
struct Begun {
    pages: usize,
    /// The latest moment as of which a listing was complete that was let go of since the first
    /// of them was begun.
    lost: Option<Instant>,
}

/// A page of a listing, from before its snapshot is taken until it is made.
pub(super) struct Page {
    listings: Arc<Mutex<Parts>>,
    dir: FileId,
    since: Instant,
}

/// What is kept of a directory.
pub(super) struct Found {
    pub snapshot: Arc<Snapshot>,
    /// Whether the directory is still as it was then, as far as its state tells.
    pub is_current: bool,
    /// For how long it may not have been.
    pub age: Duration,
}

/// What a panic left is still whole: at worst a page counts for ever as being made.
fn lock(parts: &Mutex<Parts>) -> MutexGuard<'_, Parts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listings {
    pub fn new() -> Self {
        let kept = LruCache::new(MAX_SNAPSHOTS);
        Self(Arc::new(Mutex::new(Parts { kept, begun: HashMap::new() })))
    }

    /// Begins a page of a directory. Called before the snapshot is taken that it is made from.
    pub fn begin(&self, dir: FileId) -> Page {
        lock(&self.0).begun.entry(dir).or_default().pages += 1;
        Page { listings: Arc::clone(&self.0), dir, since: Instant::now() }
    }

    /// Moves on what is kept of a directory, if it is of the moment before the change; else it
    /// stays a listing of a moment of its own.
    pub fn apply(&self, dir: FileId, change: &DirChange) {
        if let Some(kept) = lock(&self.0).kept.peek_mut(&dir)
            && kept.snapshot.precedes(change)
        {
            Arc::make_mut(&mut kept.snapshot).apply(change);
        }
    }

    /// Notes that the object of a name may be elsewhere now.
    pub fn doubt(&self, dir: FileId, name: &Name) {
        if let Some(kept) = lock(&self.0).kept.peek_mut(&dir)
            && kept.snapshot.knows(name)
        {
            Arc::make_mut(&mut kept.snapshot).doubt(name);
        }
    }

    /// Lets go of everything, also of what is being made.
    pub fn clear(&self) {
        let mut parts = lock(&self.0);
        parts.kept.clear();
        let now = Instant::now();
        parts.begun.values_mut().for_each(|begun| begun.lost = Some(now));
    }
}

impl Page {
    /// What is kept of the directory, which is in `state`.
    pub fn find(&self, state: &DirState) -> Option<Found> {
        let mut parts = lock(&self.listings);
        let kept = parts.kept.get_mut(&self.dir)?;
        let is_current = kept.snapshot.state() == *state;
        if is_current && kept.snapshot.is_certain {
            kept.as_of = kept.as_of.max(self.since);
        }
        let snapshot = Arc::clone(&kept.snapshot);
        Some(Found { snapshot, is_current, age: kept.as_of.elapsed() })
    }

    /// Keeps the listing that was made for this page, unless a later one is known or was.
    /// `is_settled` says whether no commit has passed it by.
    pub fn keep(&self, snapshot: &mut Arc<Snapshot>, is_settled: impl FnOnce() -> bool) {
        let mut parts = lock(&self.listings);
        // Asked here, because a commit that is not seen yet will tell what is kept by then.
        Arc::make_mut(snapshot).is_settled = is_settled();
        let kept = parts.kept.peek(&self.dir).map(|kept| kept.as_of);
        let lost = parts.begun.get(&self.dir).and_then(|begun| begun.lost);
        if kept.max(lost).is_some_and(|as_of| as_of > self.since) {
            return;
        }
        let kept = Kept { as_of: self.since, snapshot: Arc::clone(snapshot) };
        if let Some((dir, kept)) = parts.kept.push(self.dir, kept) {
            parts.lose(dir, kept.as_of);
        }
        parts.make_room();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut parts = lock(&self.listings);
        if let Some(begun) = parts.begun.get_mut(&self.dir) {
            begun.pages -= 1;
            if begun.pages == 0 {
                parts.begun.remove(&self.dir);
            }
        }
    }
}

impl Parts {
    /// Remembers as of when a listing was complete of which there is nothing else any more, for
    /// those pages that were begun before.
    fn lose(&mut self, dir: FileId, as_of: Instant) {
        if let Some(begun) = self.begun.get_mut(&dir) {
            begun.lost = begun.lost.max(Some(as_of));
        }
    }

    /// Lets go of what was not used for longest, until the rest is not too much; the last one
    /// stays.
    fn make_room(&mut self) {
        let mut entries: usize = self.kept.iter().map(|(_, kept)| kept.snapshot.len()).sum();
        while entries > MAX_SNAPSHOT_ENTRIES
            && self.kept.len() > 1
            && let Some((dir, kept)) = self.kept.pop_lru()
        {
            entries -= kept.snapshot.len();
            self.lose(dir, kept.as_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{Listed, Source};
    use super::*;
    use crate::vfs::{Cookie, Time};

    const DIR: FileId = FileId(7);

    fn at(nanos: u32) -> Time {
        Time { secs: 1, nanos }
    }

    fn state(delta: u32) -> DirState {
        DirState { delta: Some(at(delta)), base: None }
    }

    /// A listing with one entry, of the moment `delta`.
    fn listing(delta: u32, name: &str) -> Arc<Snapshot> {
        let name = Name::new(name.as_bytes()).unwrap();
        let entry = Listed { name, fileid: FileId(8), source: Source::Base };
        Arc::new(Snapshot::new(state(delta), 1, vec![entry]))
    }

    fn keep(page: &Page, delta: u32, name: &str) {
        page.keep(&mut listing(delta, name), || true);
    }

    /// The entry of what is kept.
    fn kept(listings: &Listings) -> Option<String> {
        let found = listings.begin(DIR).find(&state(0))?;
        let (_, entry) = found.snapshot.after(Cookie(0)).next()?;
        Some(String::from_utf8_lossy(entry.name.as_bytes()).into_owned())
    }

    #[test]
    fn who_lists_slowly_does_not_replace_what_was_begun_later() {
        // Also where both find the directory in the same state.
        for delta in [4, 5] {
            let listings = Listings::new();
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
            let listings = Listings::new();
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
        let listings = Listings::new();
        let (slow, quick) = (listings.begin(DIR), listings.begin(DIR));
        keep(&quick, 5, "quick");
        for other in 0..MAX_SNAPSHOTS.get() as u64 {
            keep(&listings.begin(FileId(100 + other)), 1, "other");
        }
        assert_eq!(kept(&listings), None);
        keep(&slow, 4, "slow");
        assert_eq!(kept(&listings), None);
        // What all was given up for is newer than any of them.
        let late = listings.begin(DIR);
        listings.clear();
        keep(&late, 6, "late");
        assert_eq!(kept(&listings), None);
        keep(&listings.begin(DIR), 6, "next");
        assert_eq!(kept(&listings).as_deref(), Some("next"));
        drop((slow, quick, late));
        assert!(lock(&listings.0).begun.is_empty());
    }

    #[test]
    fn room_is_made_by_those_that_were_not_used_for_longest() {
        let listings = Listings::new();
        keep(&listings.begin(DIR), 1, "small");
        let name = |number: usize| Name::new(number.to_string().as_bytes()).unwrap();
        let entry = |number| Listed { name: name(number), fileid: FileId(8), source: Source::Base };
        let entries = (0..=MAX_SNAPSHOT_ENTRIES).map(entry).collect();
        let slow = listings.begin(DIR);
        let large = &mut Arc::new(Snapshot::new(state(1), 1, entries));
        listings.begin(FileId(8)).keep(large, || true);
        assert_eq!(kept(&listings), None, "the large one alone is kept");
        assert!(listings.begin(FileId(8)).find(&state(1)).is_some());
        keep(&slow, 1, "slow");
        assert_eq!(kept(&listings).as_deref(), Some("slow"));
    }

    #[test]
    fn what_a_change_does_not_follow_stays_as_it_is() {
        let listings = Listings::new();
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
