//! Ancestors of the current directory of a walk: detects directory cycles.
//!
//! The server's own changes keep directories a tree. Rows of another program need not (invariant
//! S8), and a walk of such rows would never end.

use std::sync::Arc;

use crate::delta::Ino;
use crate::vfs::FsError;

use super::error::Result;

/// The session's directories above one, the closest first; directories of the base alone cannot
/// form a cycle. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(super) struct Lineage(Option<Arc<LineageLink>>);

#[derive(Debug)]
struct LineageLink {
    ino: Ino,
    above: Lineage,
}

impl Lineage {
    /// These directories and `dir` below them: O(depth).
    ///
    /// # Errors
    /// [`FsError::Loop`]: `dir` is among them.
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
