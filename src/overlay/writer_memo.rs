//! The writer's own cache of directory places.
//!
//! The readers' caches hold committed facts only; a change must see the uncommitted changes of its
//! batch. So the writer caches places separately and invalidates them as soon as a change affects
//! them. A change that is rolled back, alone or with its batch, may have cached facts that never
//! became true: then the whole memo is cleared ([`MemoTransaction`]).
//!
//! Only the writer changes these rows, so nothing else invalidates the memo.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::BasePath;
use crate::delta::Ino;
use crate::vfs::FileId;

use super::cache::Invalidation;
use super::limits::{MAX_CHILDREN, MAX_PLACE_BYTES, MAX_PLACES};
use super::node::DirPlace;
use super::weighted_lru::WeightedLru;

/// The writer's cache. Each part is bounded.
pub(super) struct WriterMemo(Mutex<MemoEntries>);

struct MemoEntries {
    places: WeightedLru<Ino, Arc<DirPlace>>,
    base_places: WeightedLru<BasePath, Arc<DirPlace>>,
    /// File numbers of inodes: only a discard changes them.
    shown: LruCache<Ino, FileId>,
}

/// A change in progress. A drop before commit clears the memo.
pub(super) struct MemoTransaction {
    known: Arc<WriterMemo>,
    /// Whether the change may have modified cached facts.
    changed: bool,
}

impl WriterMemo {
    pub fn new() -> Self {
        Self(Mutex::new(MemoEntries {
            places: WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES),
            base_places: WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES),
            shown: LruCache::new(MAX_CHILDREN),
        }))
    }

    /// Begins a change.
    pub fn begin(self: &Arc<Self>) -> MemoTransaction {
        MemoTransaction { known: Arc::clone(self), changed: true }
    }

    pub fn place(&self, dir: Ino) -> Option<Arc<DirPlace>> {
        self.facts().places.get(&dir).cloned()
    }

    pub fn add_place(&self, ino: Ino, place: &Arc<DirPlace>) {
        self.facts().places.put(ino, place.clone(), place.path_bytes());
    }

    /// As [`Self::place`], by the base directory that shows through.
    pub fn base_place(&self, base: &BasePath) -> Option<Arc<DirPlace>> {
        self.facts().base_places.get(base).cloned()
    }

    pub fn add_base_place(&self, base: &BasePath, place: &Arc<DirPlace>) {
        self.facts().base_places.put(base.clone(), place.clone(), place.path_bytes());
    }

    /// The file number that the export shows for an inode.
    pub fn shown(&self, ino: Ino) -> Option<FileId> {
        self.facts().shown.get(&ino).copied()
    }

    pub fn add_shown(&self, ino: Ino, id: FileId) {
        self.facts().shown.put(ino, id);
    }

    /// Removes what a change invalidates.
    pub fn forget(&self, touch: &Invalidation) {
        let mut facts = self.facts();
        match touch {
            Invalidation::Child(..) | Invalidation::Entries(..) => {}
            Invalidation::Place(ino, base) => {
                if let Some(ino) = ino {
                    facts.places.pop(ino);
                }
                if let Some(base) = base {
                    facts.base_places.pop(base);
                }
            }
            Invalidation::AllPlaces => facts.forget_places(),
            Invalidation::All => facts.forget_all(),
        }
    }

    /// Ignores poisoning: entries are whole values.
    fn facts(&self) -> MutexGuard<'_, MemoEntries> {
        self.0.lock()
    }
}

impl MemoEntries {
    fn forget_all(&mut self) {
        self.forget_places();
        self.shown.clear();
    }

    fn forget_places(&mut self) {
        self.places.clear();
        self.base_places.clear();
    }
}

impl MemoTransaction {
    /// The change is made; `changed` says whether it invalidated any cached fact.
    pub fn made(&mut self, changed: bool) {
        self.changed = changed;
    }

    /// The change is committed: the memo stays.
    pub fn committed(mut self) {
        self.changed = false;
    }
}

impl Drop for MemoTransaction {
    fn drop(&mut self) {
        if self.changed {
            self.known.facts().forget_all();
        }
    }
}
