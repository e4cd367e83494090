//! Drift: base objects that changed after the session saw them. Overwriting one would lose that
//! change.

use std::collections::HashSet;

use super::audit_drift::{self, HiddenObject, RemovedBaseObject};
use super::copy::original_in_copy;
use super::merge::{Merge, MergeOutcome, StepContent};
use super::plan::Merged;
use super::planner::{Planner, RemovedBaseDir};
use super::target_dir::{base_error, stat_in};
use crate::base::{Base, BaseAttr, BasePath};
use crate::delta::{MergedPath, Original};
use crate::inspect::diff::{self, Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, Change};
use crate::vfs::{FileKind, Time};

/// A base object that changed after the session saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drifted {
    /// Its path in the merged tree; of an object that the session removed, its path in the base.
    pub path: MergedPath,
    /// The kind of drift.
    pub reason: DriftReason,
    /// How a copy of the base differs from the base.
    pub in_copy: Option<String>,
    /// The directory that the session deleted or replaced, if the object is in it.
    pub inside: Option<GoneDir>,
}

/// A directory that the session deleted or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneDir {
    /// Its path.
    pub path: MergedPath,
    /// Another object took its place.
    pub is_replaced: bool,
}

impl Drifted {
    fn new(path: MergedPath, reason: DriftReason) -> Self {
        Self { path, reason, in_copy: None, inside: None }
    }

    /// The kind of drift and its detail, for the user.
    pub fn why(&self) -> String {
        if let Some(GoneDir { path, is_replaced }) = &self.inside {
            let how = if *is_replaced { "replaced" } else { "deleted" };
            let path = path.display();
            return format!("created or changed in the base since {path} was {how}");
        }
        let why = self.reason.as_str();
        self.in_copy.as_ref().map_or_else(|| why.to_owned(), |what| format!("{why}: {what}"))
    }
}

/// The kinds of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftReason {
    /// The base object changed since it was copied up.
    Changed,
    /// The base file that was copied up was removed.
    Removed,
    /// The base object changed, or was created, after the session deleted it.
    ChangedSinceDeleted,
    /// The base has a new object where the session made one.
    Came,
    /// Both changed the same lines.
    Conflict,
    /// Both changed the mode, owner or group, to different values.
    Attributes,
    /// Both changed it, and it is not text, or is too large to be merged.
    NotText,
    /// Both changed it, and its original is not kept.
    NoOriginal,
    /// Both changed it, and it is git's own.
    Git,
    /// The copy has another object there, which cannot be merged.
    Copy,
}

impl DriftReason {
    /// The kind of drift, for the user.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed in the base too",
            Self::Removed => "was removed in the base",
            Self::ChangedSinceDeleted => "changed in the base since it was deleted",
            Self::Came => "created or changed in the base too",
            Self::Conflict => "the base changed the same lines",
            Self::Attributes => "the base changed its mode or owner too",
            Self::NotText => "the base changed it too: not text, so it cannot be merged",
            Self::NoOriginal => {
                "the base changed it too: what it had before is not kept, so it cannot be merged"
            }
            Self::Git => "the base changed it too, and git's own files are not merged",
            Self::Copy => "differs from the base in this copy",
        }
    }
}

impl Planner<'_> {
    /// Notes the drift that a difference would overwrite. Returns the merge if the file can be
    /// merged.
    pub(super) fn merge_or_note_drift(&mut self, difference: &Difference) -> Result<Option<Merge>> {
        let change = &difference.change;
        if self.target.is_copy() && self.is_other_in_copy(difference)? {
            self.note_drift_at(change.path.clone(), DriftReason::Copy);
            return Ok(None);
        }
        // Drift in a removed or replaced directory is reported at the path of each changed object.
        let replaced = change.replaced.as_ref().filter(|_| change.is_replaced_drifted);
        if self.is_changed_itself(replaced, change)? {
            self.note_drift_at(change.path.clone(), DriftReason::Came);
        }
        if let Some(original) = original_in_copy(self.target.is_copy(), change) {
            return self.note_drift_from(original, difference);
        }
        let is_dir = |base: &&BaseObject| base.attr.kind == FileKind::Directory;
        let retyped = change.before.as_ref().filter(|_| change.original.is_none()).filter(is_dir);
        let is_reported_here = match retyped.filter(|_| difference.kind == DifferenceKind::Retyped)
        {
            Some(dir) => self.is_changed_itself(Some(dir), change)?,
            None => !is_gone_without_original(change),
        };
        if change.is_drifted && is_reported_here {
            return self.merge_or_note(difference, change.before.as_ref());
        }
        if self.has_other_owner(change) {
            self.note_drift_at(change.path.clone(), DriftReason::Attributes);
        }
        self.note_drift_of_hidden(difference)?;
        Ok(None)
    }

    /// Merges the session's change with the object that replaced the original, or notes drift.
    pub(super) fn merge_or_note(
        &mut self,
        difference: &Difference,
        there: Option<&BaseObject>,
    ) -> Result<Option<Merge>> {
        let change = &difference.change;
        let is_named = |named: &[MergedPath]| named.iter().any(|n| change.path.is_within(n));
        if self.is_parent_of_taken(change) {
            return Ok(None);
        }
        let has_side = is_named(&self.sides.base) || is_named(&self.sides.session);
        let known = self.last_merge.take().filter(|(path, _)| *path == change.path);
        let merged = match known {
            Some((_, merged)) => merged,
            None => self.merge(difference, there)?,
        };
        let why = match merged {
            MergeOutcome::Merge(merge) if !has_side => {
                let has_conflicts =
                    matches!(merge.content, StepContent::Both { has_conflicts: true, .. });
                if !there.is_some_and(|there| merge.writes_nothing(there)) {
                    self.plan.merged.push(Merged { path: change.path.clone(), has_conflicts });
                }
                return Ok(Some(merge));
            }
            MergeOutcome::Merge(_) => DriftReason::Changed,
            MergeOutcome::Conflict(why) => why,
        };
        match (&change.before, &change.after, why) {
            _ if self.differs_from_base(change, there)? => {
                self.note_drift_at(change.path.clone(), DriftReason::Copy)
            }
            (Some(base), None, _) => {
                self.note_drift_at(
                    MergedPath::of_base(&base.path),
                    DriftReason::ChangedSinceDeleted,
                );
            }
            (None, Some(_), DriftReason::Changed) => {
                self.note_drift_at(change.path.clone(), DriftReason::Removed)
            }
            (_, Some(after), DriftReason::Changed) if after.origin().is_none() => {
                self.note_drift_at(change.path.clone(), DriftReason::Came);
            }
            _ => self.note_drift_at(change.path.clone(), why),
        }
        Ok(None)
    }

    /// Whether a change is a directory that the base removed, and above a path at which the
    /// session's state counts: that path needs it.
    fn is_parent_of_taken(&self, change: &Change) -> bool {
        let after = change.after.as_ref().filter(|_| change.before.is_none());
        after.is_some_and(|after| after.attr().kind == FileKind::Directory)
            && self.sides.session.iter().any(|named| named.is_within(&change.path))
    }

    /// Notes base objects that changed after the session hid or replaced them, by their ctimes.
    fn note_drift_of_hidden(&mut self, difference: &Difference) -> Result<()> {
        let change = &difference.change;
        let place = change.path.clone();
        let is_dir = |kind| kind == FileKind::Directory;
        match (&change.before, &change.after) {
            (Some(_), None) if change.original.is_some() => {}
            // If a directory was moved there on the host, only its own ctime shows that.
            (Some(base), None) => {
                let path = MergedPath::of_base(&base.path);
                let since = self.gone_since(base, &place)?;
                let original = self.original_of(base)?;
                if self.is_changed_since_hidden(base, since)? {
                    self.note_drift_at(path, DriftReason::ChangedSinceDeleted);
                } else if original.is_none() {
                    let change = self.plan.changes.len().saturating_sub(1);
                    self.note_same_second(base, since, change);
                    self.note_hidden(
                        base,
                        place,
                        Drifted::new(path, DriftReason::ChangedSinceDeleted),
                    );
                }
            }
            // Drift of an object that a move replaced is noted already.
            (_, Some(_)) if change.replaced.is_some() => {
                let here = change.replaced.as_ref().filter(|_| !change.is_replaced_drifted);
                self.note_replaced(here, place)?;
            }
            // The entries of both directories show.
            (Some(here), Some(after)) if after.origin().is_none() => {
                let are_dirs = is_dir(here.attr.kind) && is_dir(after.attr().kind);
                self.note_replaced(Some(here).filter(|_| !are_dirs), place)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the base changed the object that a change replaces, apart from its entries.
    fn is_changed_itself(&self, base: Option<&BaseObject>, change: &Change) -> Result<bool> {
        match (base, &change.after) {
            (Some(base), Some(after)) => self.is_changed_since_hidden(base, after.attr().ctime),
            _ => Ok(false),
        }
    }

    /// Notes an object that the session replaced and that has no original. The audit log may show
    /// that the base changed it after the session's first change.
    fn note_replaced(&mut self, here: Option<&BaseObject>, place: MergedPath) -> Result<()> {
        if let Some(here) = here
            && self.original_of(here)?.is_none()
        {
            self.note_hidden(here, place.clone(), Drifted::new(place, DriftReason::Came));
        }
        Ok(())
    }

    /// The original of a base object, and whether the base object still equals it.
    fn original_of(&self, base: &BaseObject) -> Result<Option<(Original, bool)>> {
        let found = self.view.original_of(base);
        found.map_err(|source| diff::at(&MergedPath::of_base(&base.path), source))
    }

    fn is_changed_since_hidden(&self, base: &BaseObject, since: Time) -> Result<bool> {
        let is_changed = self.view.is_changed_since_hidden(base, since);
        is_changed.map_err(|source| diff::at(&MergedPath::of_base(&base.path), source))
    }

    /// Notes drift for the change that was noted last.
    pub(super) fn note_drift_at(&mut self, path: MergedPath, why: DriftReason) {
        let change = self.plan.changes.len().saturating_sub(1);
        self.drifted_in(change, Drifted::new(path, why));
    }

    fn drifted_in(&mut self, change: usize, drifted: Drifted) {
        self.drifted_changes.push((change, drifted));
    }

    /// Notes a base object that the session hides. It has not changed since the last change that
    /// hides it, but may have since an earlier one.
    fn note_hidden(&mut self, base: &BaseObject, place: MergedPath, drifted: Drifted) {
        let change = self.plan.changes.len().saturating_sub(1);
        self.note_hidden_in(change, base, place, drifted);
    }

    fn note_hidden_in(
        &mut self,
        change: usize,
        base: &BaseObject,
        place: MergedPath,
        drifted: Drifted,
    ) {
        let changed = base.attr.ctime;
        if self.log_begun.is_some_and(|begun| changed > begun) {
            let home = MergedPath::of_base(&base.path);
            let is_dir = base.attr.kind == FileKind::Directory;
            self.hidden.push(HiddenObject { place, home, is_dir, changed, change, drifted });
        }
    }

    /// Searches the audit log for earlier changes that hid base objects.
    pub(super) fn find_drift_by_log(&mut self) -> Result<()> {
        let hidden = std::mem::take(&mut self.hidden);
        for (change, drifted) in audit_drift::changed_since(self.opened, hidden)? {
            self.drifted_in(change, drifted);
        }
        Ok(())
    }

    /// When the session hid a base object at its place; the earliest time if that is not known.
    pub(super) fn gone_since(&self, base: &BaseObject, place: &MergedPath) -> Result<Time> {
        self.view.gone_since(base, place).map_err(|source| diff::at(place, source))
    }

    /// Searches directories that are to be removed for objects that came or changed after the
    /// session hid them. Objects that were moved out are not removed with their directory.
    pub(super) fn find_drift_in_removed_dirs(&mut self) -> Result<()> {
        for gone in std::mem::take(&mut self.removed_dirs) {
            let mut open = vec![gone.top.clone()];
            while let Some(dir) = open.pop() {
                let entries = self.entries(&dir)?;
                if self.lacks_entries(&dir, &entries, gone.since)? {
                    let path = MergedPath::of_base(&dir);
                    self.drifted_in(gone.change, Drifted::new(path, DriftReason::Copy));
                }
                for path in entries {
                    if self.taken.contains_key(&path) {
                        continue;
                    }
                    self.drift_of_removed(&path, &gone, &mut open)?;
                }
            }
        }
        Ok(())
    }

    fn drift_of_removed(
        &mut self,
        path: &BasePath,
        gone: &RemovedBaseDir,
        open: &mut Vec<BasePath>,
    ) -> Result<()> {
        let Some(attr) = self.target.stat(path)? else { return Ok(()) };
        if self.opened.session().hidden().covers(path.as_bytes()) {
            self.removed_descendants.push(RemovedBaseObject::of(path, &attr, gone.change));
            return Ok(());
        }
        if attr.kind == FileKind::Directory {
            open.push(path.clone());
        }
        let removes = self.plan.changes.get_mut(gone.change);
        if let Some(removes) = removes.filter(|removes| removes.object.is_none()) {
            removes.paths += 1;
        }
        let base = match self.target.is_copy() {
            true => match self.late_in_copy(path, &attr, gone)? {
                Some(base) => base,
                None => return Ok(()),
            },
            false => BaseObject { path: path.clone(), attr },
        };
        let at = MergedPath::of_base(path);
        let drifted = Drifted::new(at.clone(), DriftReason::ChangedSinceDeleted);
        let original = self.original_of(&base)?;
        if self.is_changed_since_hidden(&base, gone.since)? {
            self.drifted_in(gone.change, drifted);
        } else if let Some((original, _)) = original {
            self.removed_descendants.push(RemovedBaseObject::as_hidden(
                &original,
                &base.attr,
                gone.change,
            ));
        } else {
            self.removed_descendants.push(RemovedBaseObject::of(path, &base.attr, gone.change));
            self.note_same_second(&base, gone.since, gone.change);
            self.note_hidden_in(gone.change, &base, at, drifted);
        }
        Ok(())
    }

    /// Compares an object in a copy with its original, which is no drift, and with the base's
    /// object. Returns the base's object if the copy has it; otherwise notes drift.
    fn late_in_copy(
        &mut self,
        path: &BasePath,
        attr: &BaseAttr,
        gone: &RemovedBaseDir,
    ) -> Result<Option<BaseObject>> {
        let base = self.base_stat(path)?.map(|attr| BaseObject { path: path.clone(), attr });
        if let Some((original, _)) = base.as_ref().map_or(Ok(None), |b| self.original_of(b))?
            && original.digest.is_some()
            && self.is_original(&original, path, attr)?
        {
            self.removed_descendants.push(RemovedBaseObject::as_hidden(
                &original,
                attr,
                gone.change,
            ));
            return Ok(None);
        }
        // The base has removed it since the session did.
        let known = BaseObject { path: path.clone(), attr: attr.clone() };
        if base.is_none()
            && let Some((original, _)) = self.original_of(&known)?
            && original.kind == attr.kind
            && (attr.kind == FileKind::Directory
                || original.digest.is_some() && self.is_original(&original, path, attr)?)
        {
            self.removed_descendants.push(RemovedBaseObject::as_hidden(
                &original,
                attr,
                gone.change,
            ));
            return Ok(None);
        }
        // With the base's number and times, which clients saw.
        let base = base.filter(|base| !self.is_other(base).unwrap_or(true));
        if base.is_none() {
            let path = MergedPath::of_base(path);
            self.drifted_in(gone.change, Drifted::new(path, DriftReason::Copy));
        }
        Ok(base)
    }

    /// Notes a base object that changed in the second `since`. A whiteout stores only the second of
    /// a removal, so the removal may have come first.
    fn note_same_second(&mut self, base: &BaseObject, since: Time, change: usize) {
        if base.attr.ctime.secs == since.secs {
            self.same_second.push(RemovedBaseObject::of(&base.path, &base.attr, change));
        }
    }

    /// Notes drift of objects that changed in the second of their removal, unless the audit log has
    /// the removal after the change.
    pub(super) fn find_drift_in_same_second(&mut self) -> Result<()> {
        let changed = std::mem::take(&mut self.same_second);
        for (RemovedBaseObject { path, change, .. }, place) in
            audit_drift::not_removed(self.opened, changed)?
        {
            let there = self.view.find(&place).map_err(|source| diff::at(&place, source))?;
            // An object that still shows is in a directory that a client moved.
            if there.is_none() {
                let path = MergedPath::of_base(&path);
                self.drifted_in(change, Drifted::new(path, DriftReason::ChangedSinceDeleted));
            }
        }
        Ok(())
    }

    fn entries(&self, dir: &BasePath) -> Result<Vec<BasePath>> {
        self.entries_in(self.target.reader(), dir)
    }

    fn entries_in(&self, tree: &dyn Base, dir: &BasePath) -> Result<Vec<BasePath>> {
        let list = tree.list(dir).map_err(|source| base_error(&self.target.shown(dir), source))?;
        Ok(list.entries.iter().map(|entry| dir.join(&entry.name)).collect())
    }

    /// Whether a copy lacks an entry of the base that clients may have seen: one that did not come
    /// after `since`.
    fn lacks_entries(&self, dir: &BasePath, entries: &[BasePath], since: Time) -> Result<bool> {
        let in_base = stat_in(self.opened.base(), dir);
        let is_no_dir = |attr: Option<BaseAttr>| attr.is_none_or(|a| a.kind != FileKind::Directory);
        if !self.target.is_copy() || in_base.is_ok_and(is_no_dir) {
            return Ok(false);
        }
        let entries: HashSet<_> = entries.iter().collect();
        for path in self.entries_in(self.opened.base(), dir)? {
            if entries.contains(&path) {
                continue;
            }
            let Some(attr) = self.base_stat(&path)? else { continue };
            if !self.is_changed_since_hidden(&BaseObject { path, attr }, since)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a change removes an object that has no original.
pub(super) fn is_gone_without_original(change: &Change) -> bool {
    change.after.is_none() && change.original.is_none()
}
