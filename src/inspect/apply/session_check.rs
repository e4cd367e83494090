//! Detects changes that clients make in the session during an apply.
//!
//! Before each rename, and before attributes of a file are set in its place, the session's rows are
//! compared with those that the plan saw: a change whose name or object differs is left out.
//! Copy-ups that clients started since are finished before the base changes.

use std::ops::ControlFlow;

use super::finish_copy_up::finish_pending_copies;
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

/// The session that is applied, and its updater.
pub(super) struct SessionCheck<'a, 'b> {
    opened: &'a OpenSession,
    /// `None` if the target is a copy of the base: the session and its base do not change.
    updater: Option<&'a mut (dyn SessionUpdater + 'b)>,
    /// Pending chunks that are lost because their base file changed.
    lost: PendingCopies,
}

impl<'a, 'b> SessionCheck<'a, 'b> {
    pub fn new(
        opened: &'a OpenSession,
        updater: Option<&'a mut (dyn SessionUpdater + 'b)>,
    ) -> Self {
        Self { opened, updater, lost: PendingCopies::default() }
    }

    /// Whether the session drops the applied changes.
    pub fn is_kept_in_step(&self) -> bool {
        self.updater.is_some()
    }

    /// Whether a change is still as planned, right before a step of it. `Break` if `watch` broke
    /// off a copy-up that has to finish before the step.
    pub fn before_step(
        &mut self,
        change: Option<&AppliedChange>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<ControlFlow<(), bool>> {
        let Some(updater) = self.updater.as_deref_mut() else {
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
            if finish_pending_copies(Some(updater), watch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (is_same, self.lost) = look()?;
        }
        Ok(ControlFlow::Continue(is_same))
    }

    /// Drops applied changes from the session. Returns the paths of those that it keeps.
    pub fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        match self.updater.as_deref_mut() {
            Some(updater) => updater.forget(applied, is_first),
            None => Ok(Vec::new()),
        }
    }

    /// Drops the modes of directories that were closed after that.
    pub fn forget_closed(&mut self, applied: &[AppliedChange]) -> Result<()> {
        match self.updater.as_deref_mut() {
            Some(updater) => updater.forget_closed(applied),
            None => Ok(()),
        }
    }

    /// Drops copies without a change from the session.
    pub fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        if let Some(updater) = self.updater.as_deref_mut().filter(|_| !copies.is_empty()) {
            updater.drop_unchanged(copies);
        }
    }
}

/// Whether the session's rows for a change's path are those that the plan saw.
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
