//! What the writer need not ask the file for.
//!
//! It is as the writer's transaction has it: all changes of it come through the writer, other
//! programs keep off the tables of a served session, and what is rolled back is forgotten.

use crate::delta::Ino;
use crate::vfs::Name;

use super::inode_cache::InodeCache;
use super::name_cache::NameCache;
use super::negative_cache::NegativeCache;

/// Paths that are kept, in bytes: what has a longer one is asked for each time.
pub(super) const MAX_KEPT_PATH_BYTES: usize = 512;

/// What the writer has at hand; each part is bounded.
pub(super) struct WriterCache {
    /// Inode rows.
    pub rows: InodeCache,
    /// Names of inodes.
    pub names: NameCache,
    /// What is not there.
    pub absent: NegativeCache,
}

impl WriterCache {
    /// Nothing.
    pub(super) fn new() -> Self {
        Self { rows: InodeCache::new(), names: NameCache::new(), absent: NegativeCache::new() }
    }

    /// Notes a name that an inode has from now on.
    pub(super) fn now_at(&self, ino: Ino, parent: Ino, name: &Name) {
        self.names.changed(ino, self.rows.has_one_name(ino).then_some((parent, name)));
    }

    /// Forgets all: what was changed is rolled back.
    pub(super) fn clear(&self) {
        self.rows.clear();
        self.names.clear();
        self.absent.clear();
    }
}
