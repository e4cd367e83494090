//! What an undo changes, and what stands against it.

use crate::delta::MergedPath;

/// What becomes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoChange {
    /// The path, as it is when all is done; of what is removed, as it is now.
    pub path: MergedPath,
    /// What becomes of it.
    pub kind: UndoKind,
    /// It is a directory.
    pub is_dir: bool,
}

/// How.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoKind {
    /// It is there again.
    Restored,
    /// It has its old content or attributes again.
    Changed,
    /// It goes.
    Removed,
    /// It is moved back from this path.
    Moved(MergedPath),
}

/// What changed since the apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoDrift {
    /// Where it is.
    pub path: MergedPath,
    /// What happened.
    pub why: &'static str,
    /// Nothing can bring it back.
    pub is_lost: bool,
    /// The change of the apply that it is about.
    pub(super) change: usize,
}
