//! What readers remember between transactions.
//!
//! Two kinds of facts. *Locations* (which base path has a number) never become wrong by a change
//! in the session, only by one in the base, and whoever uses them looks again.
//! *Places* and *children* come from the session's rows: a writer forgets them right after the
//! commit that changes them, and a reader uses and adds them only while no commit has begun
//! since before its snapshot was taken ([`Commits`]). So what the caches hold is what such a
//! snapshot says, and no answer mixes two states.
//! The writer never uses these: it must see its batch's uncommitted rows (see `known`).

use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::{BasePath, Listing};
use crate::delta::Ino;
use crate::vfs::{FileId, Name, PathDigest};
use crate::worker::{Commits, Version};

use super::limits::{
    MAX_ABSENT, MAX_ABSENT_BYTES, MAX_ALIKE, MAX_CHILDREN, MAX_LISTED, MAX_LISTED_BYTES,
    MAX_LOCATION_BYTES, MAX_LOCATIONS, MAX_PLACE_BYTES, MAX_PLACES,
};
use super::listings::{LargeListings, ListingCache, Page};
use super::node::{DirId, DirPlace};
use super::snapshot::DirChange;
use super::trail::Searched;
use super::weighed::Weighed;

/// What the delta says about a name; the base is asked each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaChild {
    /// An entry.
    Entry(Ino),
    /// A whiteout: nothing, whatever the base has.
    WhitedOut,
    /// Neither: what the base has shows through.
    Through,
}

/// What a commit makes wrong.
#[derive(Debug, Clone)]
pub(super) enum Invalidation {
    /// What a name in a directory leads to.
    Child(DirId, Name),
    /// Where a directory is: its inode, if it has one, and the base directory that shows.
    Place(Option<Ino>, Option<BasePath>),
    /// Where directories are: one of them moved, with all below it.
    AllPlaces,
    /// Everything: much was given up.
    All,
    /// A directory's entries.
    Entries(FileId, DirChange),
}

/// Where a base object is.
struct Location {
    path: BasePath,
    /// When the delta said nothing of the object but that it shows: it held in this version.
    shows: Option<Version>,
}

/// The readers' memory; each part is bounded.
pub(super) struct Caches {
    commits: Arc<Commits>,
    children: Mutex<LruCache<(DirId, Name), DeltaChild>>,
    places: Mutex<Weighed<Ino, Arc<DirPlace>>>,
    base_places: Mutex<Weighed<BasePath, Arc<DirPlace>>>,
    locations: Mutex<Weighed<FileId, Location>>,
    listed: Mutex<Weighed<PathDigest, Vec<BasePath>>>,
    absent: Mutex<Weighed<(FileId, PathDigest), Arc<Searched>>>,
    listings: ListingCache,
}

/// A poisoned cache is still a cache: its entries are whole values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Caches {
    pub fn new(commits: Arc<Commits>, large: Arc<LargeListings>) -> Self {
        Self {
            commits,
            children: Mutex::new(LruCache::new(MAX_CHILDREN)),
            places: Mutex::new(Weighed::new(MAX_PLACES, MAX_PLACE_BYTES)),
            base_places: Mutex::new(Weighed::new(MAX_PLACES, MAX_PLACE_BYTES)),
            locations: Mutex::new(Weighed::new(MAX_LOCATIONS, MAX_LOCATION_BYTES)),
            listed: Mutex::new(Weighed::new(MAX_LISTED, MAX_LISTED_BYTES)),
            absent: Mutex::new(Weighed::new(MAX_ABSENT, MAX_ABSENT_BYTES)),
            listings: ListingCache::new(large),
        }
    }

    /// The moment for a snapshot that is about to be taken.
    pub fn version(&self) -> Option<Version> {
        self.commits.version()
    }

    /// Whether a snapshot taken since `version` holds just what the caches do.
    pub fn is_at(&self, version: Version) -> bool {
        self.commits.is_at(version)
    }

    /// Forgets what a commit changed. Called after it, before its answers leave.
    pub fn forget(&self, touched: &[Invalidation]) {
        for touch in touched {
            match touch {
                Invalidation::Child(dir, name) => {
                    lock(&self.children).pop(&(*dir, name.clone()));
                    self.listings.doubt(dir.fileid, name);
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

    pub fn child(&self, at: Version, dir: DirId, name: &Name) -> Option<DeltaChild> {
        let mut children = lock(&self.children);
        let known = children.get(&(dir, name.clone())).copied();
        known.filter(|_| self.is_at(at))
    }

    pub fn add_child(&self, at: Version, dir: DirId, name: &Name, child: DeltaChild) {
        let mut children = lock(&self.children);
        if self.is_at(at) {
            children.put((dir, name.detached()), child);
        }
    }

    pub fn place(&self, at: Version, dir: Ino) -> Option<Arc<DirPlace>> {
        let mut places = lock(&self.places);
        places.get(&dir).filter(|_| self.is_at(at)).cloned()
    }

    pub fn add_place(&self, at: Version, ino: Ino, place: &Arc<DirPlace>) {
        let mut places = lock(&self.places);
        if self.is_at(at) {
            places.put(ino, place.clone(), place.path_bytes());
        }
    }

    /// The same by the base directory that shows through.
    pub fn base_place(&self, at: Version, base: &BasePath) -> Option<Arc<DirPlace>> {
        let mut places = lock(&self.base_places);
        places.get(base).filter(|_| self.is_at(at)).cloned()
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

    /// Where a base object is of which the rows say nothing but that it shows.
    pub fn showing(&self, at: Version, id: FileId) -> Option<BasePath> {
        let mut locations = lock(&self.locations);
        let known = locations.get(&id).filter(|known| known.shows == Some(at))?;
        Some(known.path.clone())
    }

    /// Notes that the base object at its known location shows.
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

    /// Remembers where all entries of a directory are, if that leaves room for others.
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

    /// The base directories with this trail that were listed with attributes: whose entries'
    /// handles clients have without having looked any of them up.
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
    pub fn absent(&self, id: FileId, trail: &PathDigest) -> Option<Arc<Searched>> {
        lock(&self.absent).get(&(id, *trail)).cloned()
    }

    /// Remembers, or forgets, that a base object was not found.
    pub fn put_absent(&self, id: FileId, trail: &PathDigest, searched: Option<Searched>) {
        let mut absent = lock(&self.absent);
        match searched {
            Some(searched) => {
                let bytes = searched.path_bytes();
                absent.put((id, *trail), Arc::new(searched), bytes);
            }
            None => absent.pop(&(id, *trail)),
        }
    }

    /// Begins a page of a directory's listing; before its snapshot is taken.
    pub fn begin_page(&self, dir: FileId) -> Page {
        self.listings.begin(dir)
    }
}
