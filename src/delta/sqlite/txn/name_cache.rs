//! Caches one name per inode for the writer: each audit row needs the path of its object.
//!
//! Every change of an entry updates this cache; a rollback clears it.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::delta::Ino;
use crate::vfs::Name;

/// Capacity, in names.
const MAX_NAMES: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// One name of each cached inode.
pub(super) struct NameCache(RefCell<KnownName>);

struct KnownName {
    /// Parent directory and one name, by inode.
    names: LruCache<Ino, (Ino, Name)>,
    /// The last entry that a lookup found: parent, name, inode.
    found: Option<(Ino, Name, Ino)>,
}

impl NameCache {
    pub(super) fn new() -> Self {
        Self(RefCell::new(KnownName { names: LruCache::new(MAX_NAMES), found: None }))
    }

    /// A cached name of `ino`.
    pub(super) fn get(&self, ino: Ino) -> Option<(Ino, Name)> {
        self.0.borrow_mut().names.get(&ino).cloned()
    }

    /// Adds a name of `ino`.
    pub(super) fn add(&self, ino: Ino, parent: Ino, name: &Name) {
        self.0.borrow_mut().names.put(ino, (parent, name.clone()));
    }

    /// Records the result of a lookup; the entry may be about to be deleted.
    pub(super) fn found(&self, parent: Ino, name: &Name, ino: Ino) {
        self.0.borrow_mut().found = Some((parent, name.clone(), ino));
    }

    /// Records that `ino` has got a new entry: `now`, if that is its only one.
    pub(super) fn changed(&self, ino: Ino, now: Option<(Ino, &Name)>) {
        let known = &mut *self.0.borrow_mut();
        known.found = None;
        match now {
            Some((parent, name)) => drop(known.names.put(ino, (parent, name.clone()))),
            None => drop(known.names.pop(&ino)),
        }
    }

    /// Removes the names of the inode that a deleted entry pointed to. Clears the cache if that
    /// inode is unknown, or if `is_double`: there may be a second entry of this name.
    pub(super) fn forget_entry(&self, parent: Ino, name: &Name, is_double: bool) {
        let known = &mut *self.0.borrow_mut();
        match known.found.take() {
            Some((dir, found, ino)) if dir == parent && found == *name && !is_double => {
                known.names.pop(&ino);
            }
            _ => known.names.clear(),
        }
    }

    /// Clears the cache, after a rollback.
    pub(super) fn clear(&self) {
        let known = &mut *self.0.borrow_mut();
        known.names.clear();
        known.found = None;
    }
}
