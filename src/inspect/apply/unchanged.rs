//! Session objects without a change: copies that equal their original, and new objects that the
//! base then got too. They hide later changes of the base, so an apply drops them. Directories that
//! the base no longer has go with them, if nothing else is in them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::journal;
use super::planner::Planner;
use crate::inspect::content::is_made_in_base;
use crate::inspect::diff::{self, Difference, DifferenceKind, drifted_original};
use crate::inspect::error::Result;
use crate::overlay::{BaseVersion, Change, TreeObject, UnchangedCopy};
use crate::vfs::{FileId, FileKind};

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
        let base = self.copy.base.as_ref().map(|base| {
            let times = [Some(base.mtime), base.ctime].map(|time| time.map(journal::time));
            json!([base.fileid.0, base.size, times])
        });
        json!({ "path": path, "object": object, "base": base, "is_drifted": self.is_drifted })
    }

    pub(super) fn read(value: &Value) -> Option<Self> {
        let copy = UnchangedCopy {
            path: journal::to_merged(value.get("path")?)?,
            object: journal::to_object(value.get("object")?)?,
            base: journal::optional(value.get("base").unwrap_or(&Value::Null), to_version)?,
        };
        Some(Self { copy, is_drifted: value.get("is_drifted")?.as_bool()? })
    }
}

fn to_version(value: &Value) -> Option<BaseVersion> {
    let times = value.get(2)?;
    Some(BaseVersion {
        fileid: FileId(value.get(0)?.as_u64()?),
        size: value.get(1)?.as_u64()?,
        mtime: journal::to_time(times.get(0)?)?,
        ctime: journal::optional(times.get(1)?, journal::to_time)?,
    })
}

/// What a plan does with a change that is chosen.
pub(super) struct Compared {
    /// The difference that is applied.
    pub difference: Option<Difference>,
    /// The copy that the session drops instead.
    pub dropped: Option<DroppedCopy>,
    /// See [`diff::holds_no_change`].
    pub holds_no_change: bool,
    /// The base has given the directory the mode and owner that the session gave it.
    pub is_set_alike: bool,
}

/// How the base has a change that the session made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InBase {
    /// The base made the same change of what the session changed.
    Alike,
    /// The base's text has the change, and others.
    WithOthers,
}

impl Planner<'_> {
    /// Compares a chosen change with the target.
    pub(super) fn compared(&mut self, change: Change) -> Result<Compared> {
        let holds_no_change = diff::holds_no_change(self.opened, self.view, false, &change)?;
        let copy = match holds_no_change {
            true => self.lost_dir_of(&change)?,
            false => self.copy_of(&change, false),
        };
        let mut difference = self.difference(change)?;
        let in_base = match &difference {
            Some(found) if copy.is_some() => self.in_base(found)?,
            _ => None,
        };
        if let Some(DroppedCopy { mut copy, mut is_drifted }) = copy
            && (holds_no_change
                || in_base.is_some()
                || difference.as_ref().is_none_or(is_as_it_began))
        {
            if let Some(how) = in_base {
                let base = difference.as_ref().and_then(|found| found.change.before.as_ref());
                copy.base = base.map(|base| BaseVersion::of(&base.attr));
                is_drifted = how == InBase::WithOthers;
            }
            let dropped = Some(DroppedCopy { copy, is_drifted });
            let is_set_alike = false;
            return Ok(Compared { difference: None, dropped, holds_no_change, is_set_alike });
        }
        let mut is_set_alike = false;
        if let Some(found) = &mut difference {
            if self.is_time_of_nothing(found)? {
                difference = None;
            } else if self.is_dir_set_alike(found)? {
                is_set_alike = true;
                (found.differs.mode, found.differs.owner) = (false, false);
            }
        }
        Ok(Compared { difference, dropped: None, holds_no_change, is_set_alike })
    }

    /// Whether both sides gave a directory, at its place, the same mode or owner.
    fn is_dir_set_alike(&self, difference: &Difference) -> Result<bool> {
        let (change, differs) = (&difference.change, difference.differs);
        let is_dir = |object: &TreeObject| object.attr().kind == FileKind::Directory;
        Ok(change.after.as_ref().is_some_and(is_dir)
            && self.may_go(change)
            && (differs.mode || differs.owner)
            && is_made_in_base(self.opened, self.view, change, differs)?)
    }

    /// The lost directory to drop, unless the session has to keep a whiteout in it.
    pub(super) fn lost_dir_of(&mut self, change: &Change) -> Result<Option<DroppedCopy>> {
        let Some(copy) = self.copy_of(change, true) else { return Ok(None) };
        let kept = match &self.kept_whiteouts {
            Some(kept) => kept,
            None => {
                let kept = self.view.kept_whiteouts();
                let kept = kept.map_err(|source| diff::at(&change.path, source))?;
                &*self.kept_whiteouts.insert(kept)
            }
        };
        Ok(Some(copy).filter(|copy| copy.copy.path.first_below(kept).is_none()))
    }

    /// Whether the base's state may count for a change. It does not if the target is a copy of the
    /// base, if an option writes the session's object whatever the base has, or if more changed
    /// than the object itself (a move, a hard link).
    fn may_go(&self, change: &Change) -> bool {
        let is_named = self.sides.session.iter().any(|named| change.path.is_within(named));
        !(self.target.is_copy()
            || self.is_forced
            || is_named
            || change.is_moved
            || change.is_link
            || change.replaced.is_some())
    }

    /// The copy to drop if the change has no difference.
    pub(super) fn copy_of(&self, change: &Change, holds_no_change: bool) -> Option<DroppedCopy> {
        let after = change.after.as_ref()?;
        let is_kept_dir = after.attr().kind == FileKind::Directory && !holds_no_change;
        if is_kept_dir || !self.may_go(change) {
            return None;
        }
        let object = (after.attr().fileid, after.attr().ctime);
        let copy = UnchangedCopy { path: change.path.clone(), object, base: None };
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
