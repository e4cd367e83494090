//! What the writer remembers of where directories are.
//!
//! The readers' caches hold what is committed; a change must see what its batch did before it.
//! So the writer has a memory of its own: what a change learns is true for the next one, and
//! what it makes wrong it forgets at once. A change that is not kept, or whose batch is not, may
//! have learned what never came to be: then all is forgotten ([`MemoTransaction`]).
//!
//! Nobody but the writer changes these rows, so nothing else makes it wrong.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::base::BasePath;
use crate::delta::Ino;
use crate::vfs::FileId;

use super::cache::Invalidation;
use super::limits::{MAX_CHILDREN, MAX_PLACE_BYTES, MAX_PLACES};
use super::node::DirPlace;
use super::weighed::Weighed;

/// The writer's memory; each part is bounded.
pub(super) struct WriterMemo(Mutex<Facts>);

struct Facts {
    places: Weighed<Ino, Arc<DirPlace>>,
    base_places: Weighed<BasePath, Arc<DirPlace>>,
    /// The numbers that inodes are shown with: those change only where things are given up.
    shown: LruCache<Ino, FileId>,
}

/// A change in progress: dropped before it is committed, it lets the memory go.
pub(super) struct MemoTransaction {
    known: Arc<WriterMemo>,
    /// Whether it may have changed what is remembered.
    changed: bool,
}

impl WriterMemo {
    pub fn new() -> Self {
        Self(Mutex::new(Facts {
            places: Weighed::new(MAX_PLACES, MAX_PLACE_BYTES),
            base_places: Weighed::new(MAX_PLACES, MAX_PLACE_BYTES),
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

    /// The same by the base directory that shows through.
    pub fn base_place(&self, base: &BasePath) -> Option<Arc<DirPlace>> {
        self.facts().base_places.get(base).cloned()
    }

    pub fn add_base_place(&self, base: &BasePath, place: &Arc<DirPlace>) {
        self.facts().base_places.put(base.clone(), place.clone(), place.path_bytes());
    }

    /// The number that an inode is shown with.
    pub fn shown(&self, ino: Ino) -> Option<FileId> {
        self.facts().shown.get(&ino).copied()
    }

    pub fn add_shown(&self, ino: Ino, id: FileId) {
        self.facts().shown.put(ino, id);
    }

    /// Forgets what a change makes wrong.
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

    /// A poisoned memory is still one: its entries are whole values.
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock()
    }
}

impl Facts {
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
    /// The change is made; `changed` says whether anything that is remembered.
    pub fn made(&mut self, changed: bool) {
        self.changed = changed;
    }

    /// The change is committed.
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
