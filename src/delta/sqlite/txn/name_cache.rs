//! The names by which the writer knows files: the audit log asks for one with each change.
//!
//! What changes an entry comes through here, and what is rolled back is forgotten.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::delta::Ino;
use crate::vfs::Name;

/// Names at hand.
const MAX_NAMES: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// One name of each of some inodes.
pub(super) struct NameCache(RefCell<KnownName>);

struct KnownName {
    /// Directory and name by inode: one of several.
    names: LruCache<Ino, (Ino, Name)>,
    /// The entry that was looked up last.
    found: Option<(Ino, Name, Ino)>,
}

impl NameCache {
    /// No names.
    pub(super) fn new() -> Self {
        Self(RefCell::new(KnownName { names: LruCache::new(MAX_NAMES), found: None }))
    }

    /// A name of `ino`, if one is at hand.
    pub(super) fn get(&self, ino: Ino) -> Option<(Ino, Name)> {
        self.0.borrow_mut().names.get(&ino).cloned()
    }

    /// Keeps a name of `ino`.
    pub(super) fn add(&self, ino: Ino, parent: Ino, name: &Name) {
        self.0.borrow_mut().names.put(ino, (parent, name.clone()));
    }

    /// Notes where a name leads to: it may be about to go.
    pub(super) fn found(&self, parent: Ino, name: &Name, ino: Ino) {
        self.0.borrow_mut().found = Some((parent, name.clone(), ino));
    }

    /// Notes that `ino` has got another name: `now`, if it has no other one.
    pub(super) fn changed(&self, ino: Ino, now: Option<(Ino, &Name)>) {
        let known = &mut *self.0.borrow_mut();
        known.found = None;
        match now {
            Some((parent, name)) => drop(known.names.put(ino, (parent, name.clone()))),
            None => drop(known.names.pop(&ino)),
        }
    }

    /// Forgets the names of whatever inode an entry leads to; there may be another of its name, if
    /// it `is_double`.
    pub(super) fn forget_entry(&self, parent: Ino, name: &Name, is_double: bool) {
        let known = &mut *self.0.borrow_mut();
        match known.found.take() {
            Some((dir, found, ino)) if dir == parent && found == *name && !is_double => {
                known.names.pop(&ino);
            }
            _ => known.names.clear(),
        }
    }

    /// Forgets all: what was changed is rolled back.
    pub(super) fn clear(&self) {
        let known = &mut *self.0.borrow_mut();
        known.names.clear();
        known.found = None;
    }
}
