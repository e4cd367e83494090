//! Session objects without a change: copies that equal their original, and new objects that the
//! base then got too. They hide later changes of the base, so an apply drops them. Directories that
//! the base no longer has go with them, if nothing else is in them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::journal;
use super::planner::Planner;
use crate::inspect::diff::{Difference, DifferenceKind, drifted_original};
use crate::inspect::error::Result;
use crate::overlay::{Change, TreeObject, UnchangedCopy};
use crate::vfs::FileKind;

/// A copy that the session drops, so that the base shows there again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedCopy {
    /// The copy.
    pub copy: UnchangedCopy,
    /// The base has another object than the copy, or none.
    pub is_drifted: bool,
}

impl DroppedCopy {
    /// Its entry in the journal.
    pub(super) fn json(&self) -> Value {
        let path = journal::bytes(self.copy.path.as_bytes());
        let object = journal::object(self.copy.object);
        json!({ "path": path, "object": object, "is_drifted": self.is_drifted })
    }

    pub(super) fn read(value: &Value) -> Option<Self> {
        let copy = UnchangedCopy {
            path: journal::to_merged(value.get("path")?)?,
            object: journal::to_object(value.get("object")?)?,
        };
        Some(Self { copy, is_drifted: value.get("is_drifted")?.as_bool()? })
    }
}

impl Planner<'_> {
    /// The copy to drop if the change has no difference. `None` if the target is a copy of the
    /// base, if an option writes the session's object whatever the base has, or if more changed
    /// than the content (a move, a hard link).
    pub(super) fn copy_of(&self, change: &Change, holds_no_change: bool) -> Option<DroppedCopy> {
        let after = change.after.as_ref()?;
        let is_named = self.sides.session.iter().any(|named| change.path.is_within(named));
        if self.target.is_copy()
            || self.is_forced
            || is_named
            || (after.attr().kind == FileKind::Directory && !holds_no_change)
            || change.is_moved
            || change.is_link
            || change.replaced.is_some()
        {
            return None;
        }
        let object = (after.attr().fileid, after.attr().ctime);
        let copy = UnchangedCopy { path: change.path.clone(), object };
        Some(DroppedCopy { copy, is_drifted: change.is_drifted })
    }

    /// Records a left-out change of a file with several hard links: another one may be applied.
    pub(super) fn note_unchosen_name(&mut self, change: &Change) {
        let row = change.after.as_ref().and_then(TreeObject::row);
        if row.is_some_and(|row| row.kind != FileKind::Directory && row.nlink > 1) {
            self.unchosen_names.push(change.clone());
        }
    }

    /// Drops copies at names that are not chosen if another name of the file is applied as a hard
    /// link of the base file: the base file is then the session's file.
    pub(super) fn drop_other_names(&mut self) {
        let takes = self.plan.steps.takes.iter().filter(|take| take.stays);
        let linked: HashSet<_> = takes
            .filter_map(|take| {
                let object = self.plan.changes.get(take.change)?.object;
                Some((object.map(|(id, _)| id)?, &take.from))
            })
            .collect();
        let mut dropped = Vec::new();
        for change in &self.unchosen_names {
            let (Some(base), Some(after)) = (&change.before, &change.after) else { continue };
            if linked.contains(&(after.attr().fileid, &base.path)) {
                dropped.extend(self.copy_of(change, false));
            }
        }
        self.plan.unchanged.extend(dropped);
    }

    /// Whether only times differ, of an object that the target, a copy of the base, does not have,
    /// or has as both sides made it.
    pub(super) fn is_time_of_nothing(&self, difference: &Difference) -> Result<bool> {
        let Some(old) = difference.old.as_ref().filter(|_| self.target.is_copy()) else {
            return Ok(false);
        };
        let is_dir = old.attr.kind == FileKind::Directory;
        let is_named = self.sides.session.iter().any(|n| difference.change.path.is_within(n));
        if is_dir || is_named || self.is_forced || !is_time_alone(difference) {
            return Ok(false);
        }
        if is_made_alike(difference) && !self.is_other(old)? {
            return Ok(true);
        }
        Ok(self.target.stat(&old.path)?.is_none_or(|there| there.kind != old.attr.kind))
    }
}

/// Whether an object that the base changed or removed differs from its original only in times.
pub(super) fn is_as_it_began(difference: &Difference) -> bool {
    is_time_alone(difference) && drifted_original(&difference.change).is_some()
}

/// Whether the session made an object, and the base then got an equal one, times apart.
pub(super) fn is_made_alike(difference: &Difference) -> bool {
    let change = &difference.change;
    let is_made = change.original.is_none()
        && change.after.as_ref().is_some_and(|after| after.origin().is_none());
    is_made && change.is_drifted && is_time_alone(difference)
}

/// Whether an object is at its own path and differs only in times.
fn is_time_alone(difference: &Difference) -> bool {
    let (change, differs) = (&difference.change, difference.differs);
    let is_at_its_place = match difference.kind {
        DifferenceKind::Modified => true,
        DifferenceKind::Renamed => change.moved_with_parent,
        DifferenceKind::Added | DifferenceKind::Deleted | DifferenceKind::Retyped => false,
    };
    is_at_its_place && !(differs.content || differs.mode || differs.owner)
}
