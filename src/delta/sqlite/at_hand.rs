//! What the writer need not ask the file for.
//!
//! It is as the writer's transaction has it: all changes of it come through the writer, other
//! programs keep off the tables of a served session, and what is rolled back is forgotten.

use crate::delta::Ino;
use crate::vfs::Name;

use super::absent::Absent;
use super::names::Names;
use super::rows::Rows;

/// Paths that are kept, in bytes: what has a longer one is asked for each time.
pub(super) const MAX_KEPT_PATH_BYTES: usize = 512;

/// What the writer has at hand; each part is bounded.
pub(super) struct AtHand {
    /// Inode rows.
    pub rows: Rows,
    /// Names of inodes.
    pub names: Names,
    /// What is not there.
    pub absent: Absent,
}

impl AtHand {
    /// Nothing.
    pub(super) fn new() -> Self {
        Self { rows: Rows::new(), names: Names::new(), absent: Absent::new() }
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
