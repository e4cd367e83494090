//! Leaves out what differs from the plan to which the user agreed.

use std::collections::BTreeSet;

use super::Skipped;
use super::plan::fingerprint;
use super::planner::Planner;
use crate::inspect::error::Result;
use crate::overlay::Change;

/// Why a change is left out that differs from the one that was shown.
const NOT_AS_SHOWN: &str = "it changed after the plan was shown";

impl Planner<'_> {
    /// Leaves out a change that differs from the plan that was shown, and adds it to `changed`;
    /// returns whether it is left out.
    pub(super) fn leave_out_if_changed(&mut self, change: &Change) -> Result<bool> {
        let Some(shown) = self.shown else { return Ok(false) };
        let print = fingerprint(change);
        let is_shown = shown.fingerprints.contains(&print);
        // Without the move of its directory, the change has no path in the target.
        let is_in_moved = self.moved_above(&change.path).is_some();
        // The base may have taken back the mode that both sides had given a directory.
        let is_alike =
            !shown.set_alike.contains(&print) || self.compared(change.clone())?.is_set_alike;
        if is_shown && is_alike && !is_in_moved {
            return Ok(false);
        }
        let has_difference = is_shown
            || match self.had_no_difference(change) {
                // The base had the session's change, and may have taken it back.
                true => self.compared(change.clone())?.difference.is_some(),
                false => self.difference(change.clone())?.is_some(),
            };
        if has_difference {
            let skipped = Skipped { path: change.path.clone(), why: NOT_AS_SHOWN.to_owned() };
            self.plan.changed.push(skipped);
        }
        Ok(has_difference || is_in_moved)
    }

    /// Whether a change was chosen in the plan that was shown, and had no difference there.
    pub(super) fn had_no_difference(&self, change: &Change) -> bool {
        self.shown.is_some_and(|shown| shown.without_difference.contains(&fingerprint(change)))
    }

    /// Adds to `changed` each change that was shown and that this plan does not have.
    pub(super) fn note_vanished_changes(&mut self) {
        let Some(shown) = self.shown else { return };
        let named = self.plan.changed.iter().map(|skipped| &skipped.path);
        let known: BTreeSet<_> =
            self.plan.changes.iter().map(|change| &change.path).chain(named).collect();
        let gone = shown.changes.iter().map(|change| &change.path);
        let gone: Vec<_> = gone.filter(|path| !known.contains(path)).cloned().collect();
        let skipped = gone.into_iter().map(|path| Skipped { path, why: NOT_AS_SHOWN.to_owned() });
        self.plan.changed.extend(skipped);
    }
}
