//! Readers' caches, kept across transactions.
//!
//! *Places* and *children* come from session rows, and obey the rule of [`memo`](super::memo): a
//! writer invalidates them right after the commit that changes them, and a reader uses and fills
//! them only while no commit has begun since before its snapshot ([`CommitSequence`]). So no reply
//! mixes two states. *Locations* map file numbers to base paths. Changes in the session never
//! invalidate a location; a change in the base can, so every user verifies it with a `stat`.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::{BasePath, Listing};
use crate::counters::Cache;
use crate::delta::Ino;
use crate::growing_lru::growing_lru;
use crate::vfs::{FileId, Name, PathDigest};
use crate::worker::{CommitSequence, Version};

use super::limits::{
    MAX_ABSENT, MAX_ABSENT_BYTES, MAX_ALIKE, MAX_CHILDREN, MAX_LISTED, MAX_LISTED_BYTES,
    MAX_LOCATION_BYTES, MAX_LOCATIONS, MAX_PLACE_BYTES, MAX_PLACES,
};
use super::listings::{LargeListings, ListingCache, Page};
use super::node::{DirId, DirPlace};
use super::snapshot::DirChange;
use super::trail::SearchedDirs;
use super::weighted_lru::WeightedLru;

/// What the delta records for a name. The base is not cached here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaChild {
    /// A dentry.
    Entry(Ino),
    /// A whiteout: the name does not exist, whatever the base has.
    WhitedOut,
    /// Neither: the base entry shows through.
    Through,
}

/// A fact that a commit invalidates.
#[derive(Debug, Clone)]
pub(super) enum Invalidation {
    /// The object that a name in a directory refers to.
    Child(DirId, Name),
    /// The place of a directory: by inode, if it has one, and by the base directory that shows.
    Place(Option<Ino>, Option<BasePath>),
    /// The places of all directories: a directory was renamed, with everything below it.
    AllPlaces,
    /// Everything, after a large discard.
    All,
    /// The entries of a directory.
    Entries(FileId, DirChange),
}

/// The path of a base object.
struct Location {
    path: BasePath,
    /// The version in which no session row affected the object, and it was visible.
    shows: Option<Version>,
}

/// The readers' caches. Each is bounded.
pub(super) struct Caches {
    commits: Arc<CommitSequence>,
    children: Mutex<LruCache<(DirId, Name), DeltaChild>>,
    places: Mutex<WeightedLru<Ino, Arc<DirPlace>>>,
    base_places: Mutex<WeightedLru<BasePath, Arc<DirPlace>>>,
    locations: Mutex<WeightedLru<FileId, Location>>,
    listed: Mutex<WeightedLru<PathDigest, Vec<BasePath>>>,
    absent: Mutex<WeightedLru<(FileId, PathDigest), Arc<SearchedDirs>>>,
    listings: ListingCache,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Caches {
    pub fn new(commits: Arc<CommitSequence>, large: Arc<LargeListings>) -> Self {
        Self {
            commits,
            children: Mutex::new(growing_lru(MAX_CHILDREN)),
            places: Mutex::new(WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES)),
            base_places: Mutex::new(WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES)),
            locations: Mutex::new(WeightedLru::new(MAX_LOCATIONS, MAX_LOCATION_BYTES)),
            listed: Mutex::new(WeightedLru::new(MAX_LISTED, MAX_LISTED_BYTES)),
            absent: Mutex::new(WeightedLru::new(MAX_ABSENT, MAX_ABSENT_BYTES)),
            listings: ListingCache::new(large),
        }
    }

    /// The version for a snapshot that is about to be taken; `None` while a commit runs.
    pub fn version(&self) -> Option<Version> {
        self.commits.version()
    }

    /// Whether the caches match a snapshot taken at `version`.
    pub fn is_at(&self, version: Version) -> bool {
        self.commits.is_at(version)
    }

    /// Removes what a commit invalidated. Must run after the commit and before its replies are
    /// sent.
    pub fn forget(&self, changed: &[Invalidation]) {
        for one in changed {
            match one {
                Invalidation::Child(dir, name) => {
                    lock(&self.children).pop(&(*dir, name.clone()));
                    self.listings.forget_source(dir.fileid, name);
                }
                Invalidation::Place(ino, base) => {
                    if let Some(ino) = ino {
                        lock(&self.places).pop(ino);
                    }
                    if let Some(base) = base {
                        lock(&self.base_places).pop(base);
                    }
                }
                Invalidation::Entries(dir, change) => self.listings.apply(*dir, change),
                Invalidation::All => {
                    lock(&self.children).clear();
                    lock(&self.places).clear();
                    lock(&self.base_places).clear();
                    self.listings.clear();
                }
                Invalidation::AllPlaces => {
                    lock(&self.places).clear();
                    lock(&self.base_places).clear();
                }
            }
        }
    }

    /// Empties all caches.
    pub fn clear(&self) {
        self.forget(&[Invalidation::All]);
        lock(&self.locations).clear();
        lock(&self.listed).clear();
        lock(&self.absent).clear();
    }

    pub fn child(&self, at: Version, dir: DirId, name: &Name) -> Option<DeltaChild> {
        let mut children = lock(&self.children);
        let known = children.get(&(dir, name.clone())).copied();
        Cache::Children.count(known.filter(|_| self.is_at(at)))
    }

    pub fn add_child(&self, at: Version, dir: DirId, name: &Name, child: DeltaChild) {
        let mut children = lock(&self.children);
        if self.is_at(at) {
            children.put((dir, name.detached()), child);
        }
    }

    pub fn place(&self, at: Version, dir: Ino) -> Option<Arc<DirPlace>> {
        let mut places = lock(&self.places);
        Cache::Places.count(places.get(&dir).filter(|_| self.is_at(at)).cloned())
    }

    pub fn add_place(&self, at: Version, ino: Ino, place: &Arc<DirPlace>) {
        let mut places = lock(&self.places);
        if self.is_at(at) {
            places.put(ino, place.clone(), place.path_bytes());
        }
    }

    /// As [`Self::place`], by the base directory that shows through.
    pub fn base_place(&self, at: Version, base: &BasePath) -> Option<Arc<DirPlace>> {
        let mut places = lock(&self.base_places);
        Cache::Places.count(places.get(base).filter(|_| self.is_at(at)).cloned())
    }

    pub fn add_base_place(&self, at: Version, base: &BasePath, place: &Arc<DirPlace>) {
        let mut places = lock(&self.base_places);
        if self.is_at(at) {
            places.put(base.clone(), place.clone(), place.path_bytes());
        }
    }

    pub fn location(&self, id: FileId) -> Option<BasePath> {
        lock(&self.locations).get(&id).map(|known| known.path.clone())
    }

    pub fn add_location(&self, id: FileId, path: &BasePath) {
        let mut locations = lock(&self.locations);
        if locations.get(&id).is_none_or(|known| known.path != *path) {
            let location = Location { path: path.clone(), shows: None };
            locations.put(id, location, path.as_bytes().len());
        }
    }

    /// The path of a base object that is visible and that no session row affects.
    pub fn showing(&self, at: Version, id: FileId) -> Option<BasePath> {
        let mut locations = lock(&self.locations);
        let known = locations.get(&id).filter(|known| known.shows == Some(at));
        Cache::Locations.count(known.map(|known| known.path.clone()))
    }

    /// Records that the base object at its cached location is visible and that no row affects it.
    pub fn add_showing(&self, at: Version, id: FileId, path: &BasePath) {
        let mut locations = lock(&self.locations);
        if let Some(known) = locations.get_mut(&id)
            && known.path == *path
            && self.is_at(at)
        {
            known.shows = Some(at);
        }
    }

    pub fn forget_location(&self, id: FileId) {
        lock(&self.locations).pop(&id);
    }

    /// Caches the locations of all entries of a directory, unless they would evict most others.
    pub fn add_locations(&self, dir: &BasePath, listing: &Listing) {
        if listing.entries.len() > MAX_LOCATIONS.get() / 4 {
            return;
        }
        let mut locations = lock(&self.locations);
        for entry in &listing.entries {
            let path = dir.join(&entry.name);
            let bytes = path.as_bytes().len();
            locations.put(entry.fileid, Location { path, shows: None }, bytes);
        }
    }

    /// Base directories with this path digest that READDIRPLUS listed: clients have handles of
    /// their entries without any LOOKUP.
    pub fn listed(&self, trail: &PathDigest) -> Vec<BasePath> {
        lock(&self.listed).get(trail).cloned().unwrap_or_default()
    }

    pub fn add_listed(&self, trail: PathDigest, dir: &BasePath) {
        let mut listed = lock(&self.listed);
        let mut dirs = match listed.get(&trail) {
            Some(known) if known.contains(dir) => return,
            Some(known) => known.clone(),
            None => Vec::new(),
        };
        dirs.truncate(MAX_ALIKE - 1);
        dirs.insert(0, dir.clone());
        let bytes = dirs.iter().map(|dir| dir.as_bytes().len()).sum();
        listed.put(trail, dirs, bytes);
    }

    /// The search that did not find a base object.
    pub fn absent(&self, id: FileId, trail: &PathDigest) -> Option<Arc<SearchedDirs>> {
        Cache::Absent.count(lock(&self.absent).get(&(id, *trail)).cloned())
    }

    /// Adds or removes the negative entry of a base object.
    pub fn put_absent(&self, id: FileId, trail: &PathDigest, searched: Option<SearchedDirs>) {
        let mut absent = lock(&self.absent);
        match searched {
            Some(searched) => {
                let bytes = searched.path_bytes();
                absent.put((id, *trail), Arc::new(searched), bytes);
            }
            None => absent.pop(&(id, *trail)),
        }
    }

    /// The number of entries of each cache.
    pub fn entries(&self) -> [(Cache, usize); 5] {
        let places = lock(&self.places).len() + lock(&self.base_places).len();
        [
            (Cache::Children, lock(&self.children).len()),
            (Cache::Places, places),
            (Cache::Locations, lock(&self.locations).len()),
            (Cache::Absent, lock(&self.absent).len()),
            (Cache::Listings, self.listings.len()),
        ]
    }

    /// Begins a page of a listing. Must be called before the snapshot is taken.
    pub fn begin_page(&self, dir: FileId) -> Page {
        self.listings.begin(dir)
    }
}
