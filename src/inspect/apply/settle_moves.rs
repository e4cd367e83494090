//! Directories that session and base moved alike.
//!
//! The session finds the base's directory at the new path only while the base has no other one at
//! the old path. An apply may make one there, so the session drops such moves before the base
//! changes.

use super::SessionUpdater;
use crate::delta::MergedPath;
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;

/// Whether the session still has moves of directories that the base made too.
///
/// # Errors
/// The session or the base cannot be read.
pub fn has_moves_of_both(opened: &OpenSession) -> Result<bool> {
    let failed = |source| diff::at(&MergedPath::root(), source);
    opened.with_tree(|view| view.has_moves_of_both().map_err(failed))
}

/// Drops these moves from the session; without `updater`, it stays as it is.
///
/// # Errors
/// The session cannot be changed, or it or the base cannot be read.
pub(super) fn settle_moves(
    opened: &OpenSession,
    updater: Option<&mut (dyn SessionUpdater + '_)>,
) -> Result<()> {
    match updater {
        Some(updater) if has_moves_of_both(opened)? => updater.settle_moves(),
        _ => Ok(()),
    }
}
