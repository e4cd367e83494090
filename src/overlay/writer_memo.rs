//! The writer's memo, as [`memo`](super::memo) has it.
//!
//! The readers' caches hold committed facts only; a change must see the uncommitted changes of its
//! batch, so the writer remembers separately. A change that is rolled back, alone or with its
//! batch, may have added facts that never became true: then the whole memo is cleared
//! ([`MemoTransaction`]). A tool that looks at a snapshot uses one too, and drops it with the
//! snapshot.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::BasePath;
use crate::delta::Ino;
use crate::growing_lru::growing_lru;
use crate::vfs::FileId;

use super::cache::Invalidation;
use super::limits::{MAX_CHILDREN, MAX_PLACE_BYTES, MAX_PLACES};
use super::memo::Memo;
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
    memo: Arc<WriterMemo>,
    /// Whether the change may have modified cached facts.
    changed: bool,
}

impl WriterMemo {
    pub fn new() -> Self {
        Self(Mutex::new(MemoEntries {
            places: WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES),
            base_places: WeightedLru::new(MAX_PLACES, MAX_PLACE_BYTES),
            shown: growing_lru(MAX_CHILDREN),
        }))
    }

    /// Begins a change.
    pub fn begin(self: &Arc<Self>) -> MemoTransaction {
        MemoTransaction { memo: Arc::clone(self), changed: true }
    }

    /// Empties it.
    pub fn clear(&self) {
        self.facts().forget_all();
    }

    fn facts(&self) -> MutexGuard<'_, MemoEntries> {
        self.0.lock()
    }
}

impl Memo for WriterMemo {
    fn place(&self, dir: Ino) -> Option<Arc<DirPlace>> {
        self.facts().places.get(&dir).cloned()
    }

    fn add_place(&self, ino: Ino, place: &Arc<DirPlace>) {
        self.facts().places.put(ino, place.clone(), place.path_bytes());
    }

    fn base_place(&self, base: &BasePath) -> Option<Arc<DirPlace>> {
        self.facts().base_places.get(base).cloned()
    }

    fn add_base_place(&self, base: &BasePath, place: &Arc<DirPlace>) {
        self.facts().base_places.put(base.clone(), place.clone(), place.path_bytes());
    }

    fn shown(&self, ino: Ino) -> Option<FileId> {
        self.facts().shown.get(&ino).copied()
    }

    fn add_shown(&self, ino: Ino, id: FileId) {
        self.facts().shown.put(ino, id);
    }

    fn forget(&self, touch: &Invalidation) {
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
            self.memo.facts().forget_all();
        }
    }
}
