//! Changes that are applied only in part: see [`hunks`].
//!
//! The base gets the session's original with the chosen hunks, merged with the base's current
//! content if that differs. The session keeps the file whole, and the chosen hunks become part of
//! its original.

use super::Skipped;
use super::merge::{Merge, StepContent};
use super::plan::attrs;
use super::planner::Planner;
use crate::inspect::diff::Difference;
use crate::inspect::error::Result;
use crate::inspect::hunks::{self, Choice, ChosenPart, Pick};
use crate::overlay::{Change, TreeObject};
use crate::writeback::Attrs;

/// Why a file is left out if a hunk chosen in it no longer exists.
const NO_SUCH_HUNK: &str = "it changed after its hunks were chosen";

impl Planner<'_> {
    /// Whether the user chose this change or hunks of it; true if the user chose none at all.
    pub(super) fn is_picked(&self, change: &Change) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.contains_key(&change.path))
    }

    /// Records the chosen hunks of a file. If one of them no longer exists, the file goes to
    /// `left_out`; returns whether it did.
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

    /// The part of a change that is applied; `None` if all of it is.
    pub(super) fn part_of(&self, change: &Change) -> Option<&ChosenPart> {
        self.parts.get(&change.path)
    }

    /// Content and attributes of a partly applied file whose base file did not change.
    pub(super) fn made_of_part(&self, difference: &Difference) -> Result<Option<Merge>> {
        let change = &difference.change;
        let (Some(part), Some(after), Some(base)) =
            (self.part_of(change), &change.after, &change.before)
        else {
            return Ok(None);
        };
        let attrs = self.attrs_of_both(change, after)?;
        if part.has_lines {
            let content = StepContent::Given(part.content.clone());
            return Ok(Some(Merge { content, attrs }));
        }
        let mtime = self.attr_there(base)?.map_or(attrs.mtime, |there| there.mtime);
        let attrs = Attrs { mtime, ..attrs };
        Ok(Some(Merge { content: StepContent::Base, attrs }))
    }
}

/// Attributes of the session's side of a file: the chosen ones if only a part is applied.
pub(super) fn side_attrs(after: &TreeObject, part: Option<&ChosenPart>) -> Attrs {
    let own = attrs(after);
    match part {
        Some(ChosenPart { attributes: [mode, uid, gid], .. }) => {
            Attrs { mode: *mode, uid: *uid, gid: *gid, ..own }
        }
        None => own,
    }
}
