//! Ancestors of the current directory of a walk: detects directory cycles.
//!
//! The server's own changes keep directories a tree. Rows of another program may form a cycle, in
//! violation of invariant S8, and a walk of the cycle would never end.

use std::sync::Arc;

use crate::delta::Ino;
use crate::vfs::FsError;

use crate::overlay::error::Result;

/// Inodes of a directory's ancestors, the closest first. Directories without an inode are left out:
/// they cannot form a cycle. Clones share their links.
#[derive(Debug, Clone, Default)]
pub(super) struct Lineage(Option<Arc<LineageLink>>);

#[derive(Debug)]
struct LineageLink {
    ino: Ino,
    above: Lineage,
}

impl Lineage {
    /// Adds `dir` as the closest ancestor, in O(depth).
    ///
    /// # Errors
    /// [`FsError::Loop`] if `dir` is already an ancestor.
    pub fn enter(&self, dir: Ino) -> Result<Self> {
        let mut at = self;
        while let Some(link) = &at.0 {
            if link.ino == dir {
                return Err(FsError::Loop.into());
            }
            at = &link.above;
        }
        Ok(Self(Some(Arc::new(LineageLink { ino: dir, above: self.clone() }))))
    }
}
