//! Finishes pending copy-ups before an apply changes the base.
//!
//! Pending chunks can be read only while the base file is as it was at copy-up. So the session must
//! have all of them before anything in the base changes: also those of files that are not applied,
//! which may be hard links of an applied file, and those of applied files, which clients may go on
//! writing to.

use std::ops::ControlFlow;

use super::{ApplyEvent, ApplyWatch, SessionUpdater};
use crate::delta::{Ino, MergedPath, PendingCopies};
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;

/// The content of large files that the session still has only in the base.
///
/// # Errors
/// The session cannot be read.
pub fn pending_copies(opened: &OpenSession) -> Result<PendingCopies> {
    let failed = |source| diff::at(&MergedPath::root(), source);
    opened.with_tree(|view| view.pending_copies().map_err(failed))
}

/// Copies all pending chunks into the session, if there is an `updater`; `Break` if `watch` broke
/// it off. Chunks that are lost because their base file changed stay lost.
///
/// # Errors
/// The session cannot be changed.
pub(super) fn finish_pending_copies(
    updater: Option<&mut (dyn SessionUpdater + '_)>,
    watch: &mut ApplyWatch<'_>,
) -> Result<ControlFlow<()>> {
    let Some(updater) = updater else { return Ok(ControlFlow::Continue(())) };
    loop {
        let (mut next, mut has_copied) = (Some(Ino(0)), false);
        while let Some(from) = next {
            let step = updater.copy(from)?;
            has_copied |= step.has_copied;
            next = step.next;
            if next.is_some() && watch(ApplyEvent::Copying(step.left)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        // A client may have started another copy-up at an inode that this round had passed.
        if !has_copied {
            return Ok(ControlFlow::Continue(()));
        }
    }
}
