//! Changes that are applied only in part: see [`hunks`].
//!
//! What the base gets is what the session began with and the chosen hunks, merged with what the
//! base has now where that is something else. The session keeps the file whole; what it began
//! with becomes that with the chosen hunks.

use super::Skipped;
use super::merge::{Merge, StepContent};
use super::plan::attrs;
use super::planner::Planner;
use crate::inspect::diff::Difference;
use crate::inspect::error::Result;
use crate::inspect::hunks::{self, Choice, ChosenPart, Pick};
use crate::overlay::{Change, TreeObject};
use crate::writeback::Attrs;

/// Why a file is left out if a hunk that was chosen in it is gone.
const NO_SUCH_HUNK: &str = "it changed after its hunks were chosen";

impl Planner<'_> {
    /// Whether anything of a change is chosen, where hunks are.
    pub(super) fn is_picked(&self, change: &Change) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.contains_key(&change.path))
    }

    /// Leaves out, by name, a file of which a chosen hunk is not there any more; whether it is left
    /// out.
    pub(super) fn leave_out_if_vanished(&mut self, change: &Change) -> Result<bool> {
        let pick = self.chosen.as_ref().and_then(|chosen| chosen.get(&change.path));
        let Some(Pick::Hunks(ids)) = pick.cloned() else { return Ok(false) };
        let choice = match self.difference(change.clone())? {
            Some(difference) => hunks::part(self.opened, self.view, &difference, &ids)?,
            None => Choice::Vanished,
        };
        match choice {
            Choice::Whole => {}
            Choice::Part(part) => drop(self.parts.insert(change.path.clone(), part)),
            Choice::Vanished => {
                let (path, why) = (change.path.clone(), NO_SUCH_HUNK.to_owned());
                self.plan.left_out.push(Skipped { path, why });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The part of a change that is applied, if that is not all of it.
    pub(super) fn part_of(&self, change: &Change) -> Option<&ChosenPart> {
        self.parts.get(&change.path)
    }

    /// The content of a file that is applied only in part, over a base that did not change.
    pub(super) fn made_of_part(&self, difference: &Difference) -> Option<Merge> {
        let change = &difference.change;
        let (part, after) = (self.part_of(change)?, change.after.as_ref()?);
        let base = change.before.as_ref()?;
        let attrs = self.attrs_of_both(change, after);
        Some(match part.has_lines {
            true => Merge { content: StepContent::Given(part.content.clone()), attrs },
            false => {
                let attrs = Attrs { mtime: base.attr.mtime, ..attrs };
                Merge { content: StepContent::Base, attrs }
            }
        })
    }
}

/// The attributes that the session's side of a file has.
pub(super) fn side_attrs(after: &TreeObject, part: Option<&ChosenPart>) -> Attrs {
    let own = attrs(after);
    match part {
        Some(ChosenPart { attributes: [mode, uid, gid], .. }) => {
            Attrs { mode: *mode, uid: *uid, gid: *gid, ..own }
        }
        None => own,
    }
}
