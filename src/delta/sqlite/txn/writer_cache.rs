//! Caches rows for the writer, to avoid repeated queries.
//!
//! The cache matches the writer's transaction: all changes go through the writer, other programs do
//! not write to the tables of a served session, and a rollback clears the cache.

use crate::delta::Ino;
use crate::vfs::Name;

use super::inode_cache::InodeCache;
use super::name_cache::NameCache;
use super::negative_cache::NegativeCache;

/// Longest path that is cached, in bytes; rows with longer ones are queried each time.
pub(super) const MAX_KEPT_PATH_BYTES: usize = 512;

/// The writer's caches; each is bounded.
pub(super) struct WriterCache {
    /// Inode rows.
    pub rows: InodeCache,
    /// Names of inodes.
    pub names: NameCache,
    /// Negative entries.
    pub absent: NegativeCache,
}

impl WriterCache {
    pub(super) fn new() -> Self {
        Self { rows: InodeCache::new(), names: NameCache::new(), absent: NegativeCache::new() }
    }

    /// Records a new entry of an inode.
    pub(super) fn now_at(&self, ino: Ino, parent: Ino, name: &Name) {
        self.names.changed(ino, self.rows.has_one_name(ino).then_some((parent, name)));
    }

    /// Clears all caches, after a rollback.
    pub(super) fn clear(&self) {
        self.rows.clear();
        self.names.clear();
        self.absent.clear();
    }
}
