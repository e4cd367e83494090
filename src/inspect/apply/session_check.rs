//! What clients change in the session while it is applied.
//!
//! Before each step the session's rows are compared with what the plan saw: a change whose name
//! or object is another one is left out. Content of large files that a client has begun to write
//! to since is copied into the session before the base changes.

use std::ops::ControlFlow;

use super::finish_copy_up::bring_in;
use super::steps::AppliedChange;
use super::unchanged::DroppedCopy;
use super::{ApplyWatch, SessionUpdater};
use crate::delta::{MergedPath, PendingCopies};
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::overlay::TreeView;

/// Why a change is left out.
pub(super) const CHANGED: &str = "a client changed it after the plan was made";

/// The session that is applied, and who changes it.
pub(super) struct SessionCheck<'a, 'b> {
    opened: &'a OpenSession,
    /// `None` where a copy of the base is written to: the session and its base stay as they are.
    bookkeeper: Option<&'a mut (dyn SessionUpdater + 'b)>,
    /// What cannot be copied into the session, as its base file changed otherwise.
    lost: PendingCopies,
}

impl<'a, 'b> SessionCheck<'a, 'b> {
    pub fn new(
        opened: &'a OpenSession,
        bookkeeper: Option<&'a mut (dyn SessionUpdater + 'b)>,
    ) -> Self {
        Self { opened, bookkeeper, lost: PendingCopies::default() }
    }

    /// Whether the session forgets what is applied.
    pub fn is_kept_in_step(&self) -> bool {
        self.bookkeeper.is_some()
    }

    /// Whether a change is still to be made, right before a step of it; Break, where `watch` broke
    /// off the copying of content that the step would take away.
    pub fn before_step(
        &mut self,
        change: Option<&AppliedChange>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<ControlFlow<(), bool>> {
        let Some(bookkeeper) = self.bookkeeper.as_deref_mut() else {
            return Ok(ControlFlow::Continue(true));
        };
        let opened = self.opened;
        let look = || {
            opened.with_tree(|view| {
                let failed = |source| diff::at(&MergedPath::root(), source);
                let is_same = change.map_or(Ok(true), |change| is_as_planned(view, change))?;
                Ok((is_same, view.pending_copies().map_err(failed)?))
            })
        };
        let (mut is_same, pending) = look()?;
        if pending != self.lost {
            if bring_in(Some(bookkeeper), watch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (is_same, self.lost) = look()?;
        }
        Ok(ControlFlow::Continue(is_same))
    }

    /// Tells the session what was applied. Returns the changes that it keeps.
    pub fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        match self.bookkeeper.as_deref_mut() {
            Some(bookkeeper) => bookkeeper.forget(applied, is_first),
            None => Ok(Vec::new()),
        }
    }

    /// Has the session drop copies in which it changed nothing.
    pub fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        if let Some(bookkeeper) = self.bookkeeper.as_deref_mut().filter(|_| !copies.is_empty()) {
            bookkeeper.drop_unchanged(copies);
        }
    }
}

/// Whether the session's rows say of a change's path what they said when the plan was made.
fn is_as_planned(view: &TreeView<'_>, change: &AppliedChange) -> Result<bool> {
    let failed = |source| diff::at(&change.path, source);
    let Some(planned) = change.planned else { return Ok(true) };
    if view.name_state(&change.path).map_err(failed)? != planned {
        return Ok(false);
    }
    match (planned.entry, change.object) {
        // A name that only the base has.
        (None, Some((id, changed))) if change.path != MergedPath::root() => {
            view.has_copy(id, changed).map_err(failed)
        }
        _ => Ok(true),
    }
}
