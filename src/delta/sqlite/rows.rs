//! The inode rows that the writer has at hand.
//!
//! An operation looks at the same few rows over and over, and the next one at some of them again.
//! To know what a row was also says which of its tables a change leaves alone.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::delta::{Ino, InodeRow};

use super::at_hand::MAX_KEPT_PATH_BYTES;

/// Rows at hand: some 2 MiB, besides the paths of what was copied up.
const MAX_ROWS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// Rows by number; `None` for a number that has none.
pub(super) struct Rows(RefCell<LruCache<Ino, Option<InodeRow>>>);

impl Rows {
    /// No rows.
    pub(super) fn new() -> Self {
        Self(RefCell::new(LruCache::new(MAX_ROWS)))
    }

    /// The row of `ino`; `None` if it is not at hand.
    pub(super) fn get(&self, ino: Ino) -> Option<Option<InodeRow>> {
        self.0.borrow_mut().get(&ino).cloned()
    }

    /// Whether the row of `ino` is at hand and says that it has one name.
    pub(super) fn has_one_name(&self, ino: Ino) -> bool {
        self.0.borrow().peek(&ino).is_some_and(|row| row.as_ref().is_some_and(|row| row.nlink == 1))
    }

    /// Keeps what the row of `ino` is, which is not at hand.
    pub(super) fn add(&self, ino: Ino, row: Option<InodeRow>) {
        let origin = row.as_ref().and_then(|row| row.origin.as_ref());
        if origin.is_none_or(|origin| origin.path.as_bytes().len() <= MAX_KEPT_PATH_BYTES) {
            self.0.borrow_mut().put(ino, row);
        }
    }

    /// Takes the row of `ino` away, which is about to change.
    pub(super) fn take(&self, ino: Ino) -> Option<Option<InodeRow>> {
        self.0.borrow_mut().pop(&ino)
    }

    /// Forgets all: what was changed is rolled back.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}
