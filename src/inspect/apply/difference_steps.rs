//! The steps for one difference.
//!
//! An object with its base content stays the host's own: directories and files are renamed, and
//! further names are hard links. Any other object is made in the staging, and replaces the object
//! at its path.

use std::collections::BTreeSet;

use super::advice::ApplyAdvice;
use super::copy::original_in_copy;
use super::hunk_changes::side_attrs;
use super::keep;
use super::merge::{Merge, StepContent, merged_parts};
use super::plan::{ChangeSize, Make, attrs_of, target_path};
use super::planner::{Planner, RemovedBaseDir};
use super::steps::{PutStep, Set, Take};
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::inspect::InspectError;
use crate::inspect::diff::{self, Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, Change, TreeObject};
use crate::vfs::{FileKind, Time};
use crate::writeback::{Attrs, SeenObject, StagingDir, StagingSlot};

impl Planner<'_> {
    /// Adds the steps for a difference to the plan.
    pub(super) fn add(&mut self, difference: &Difference) -> Result<()> {
        let change = &difference.change;
        let merge = match self.merge_or_note_drift(difference)? {
            None => self.made_of_part(difference)?,
            merge => merge,
        };
        let before = change.before.as_ref().filter(|_| !change.is_link);
        let moves = difference.kind == DifferenceKind::Renamed && !change.moved_with_parent;
        let Some(after) = &change.after else {
            if let Some(base) = before
                && let Some(slot) = self.take(base, false)?
            {
                let counts = self.counts();
                counts.deletions += 1;
                counts.deleted_dirs += u64::from(base.attr.kind == FileKind::Directory);
                let since = self.gone_since(base, &change.path)?;
                self.goes(base, slot, since)?;
            }
            return Ok(());
        };
        let to = target_path(after.path());
        self.target.check_free(&to)?;
        let is_dir = after.attr().kind == FileKind::Directory;
        let stays = before.is_some() && difference.kind != DifferenceKind::Retyped;
        let in_copy = self.only_in_copy(change)?;
        let is_there = self.has_directory(before.filter(|_| stays), in_copy.as_ref())?;
        let stands = is_dir && !moves && is_there;
        let replaced = self.replaced(change, is_dir, in_copy.filter(|_| !stands))?;
        if stands {
            let differs = difference.differs;
            self.counts().attributes.dirs += u64::from(differs.mode || differs.owner);
            self.attributes_of_dirs.insert(self.plan.changes.len() - 1);
            return Ok(());
        }
        let kept = (stays && (!is_dir || moves)) || change.is_link;
        let kept = match &merge {
            Some(merge) => matches!(merge.content, StepContent::Base),
            None => kept && (is_dir || self.is_kept(after, change)?),
        };
        let attrs = match &merge {
            Some(merge) => merge.attrs.clone(),
            None => self.attrs_of_both(change, after)?,
        };
        let ours = side_attrs(after, self.part_of(change));
        if let Some(change) = self.plan.changes.last_mut() {
            change.merged = merged_parts(&ours, &attrs, merge.as_ref());
        }
        self.note_special(change, &attrs, kept)?;
        if kept && let Some(base) = &change.before {
            return self.keep(base, (after, attrs), (to, replaced), (moves, change.is_link));
        }
        let mut over = replaced;
        if let Some(base) = before {
            let goes = moves || difference.kind == DifferenceKind::Retyped;
            over = self.make_way(base, goes, (change, after))?.or(over);
        }
        let same = |base: &&BaseObject| base.attr.kind == after.attr().kind;
        let replaces = before.filter(same).map(|base| base.path.clone());
        self.note_losses(difference, replaces.is_some())?;
        self.make_new((after, attrs), (to, over), (replaces, merge))
    }

    /// Takes the earlier object of a change if it `goes`, or if a put cannot replace it because one
    /// of the two is a directory. Otherwise it is returned, to be replaced atomically.
    fn make_way(
        &mut self,
        base: &BaseObject,
        goes: bool,
        (change, after): (&Change, &TreeObject),
    ) -> Result<Option<SeenObject>> {
        let is_dir = |kind| kind == FileKind::Directory;
        let there = self.attr_there(base)?.map_or(base.attr.kind, |there| there.kind);
        if !goes && !is_dir(there) && !is_dir(after.attr().kind) {
            return self.seen(base);
        }
        if !self.taken.contains_key(&base.path)
            && let Some(slot) = self.take(base, false)?
        {
            // The session saw nothing of a directory that came in the place of a file.
            let has_come = change.original.is_some() || after.origin().is_some();
            let since = match has_come && is_dir(there) && !is_dir(after.attr().kind) {
                true => Time { secs: i64::MIN, nanos: 0 },
                false => after.attr().ctime,
            };
            let attr = BaseAttr { kind: there, ..base.attr.clone() };
            self.goes(&BaseObject { attr, ..base.clone() }, slot, since)?;
        }
        Ok(None)
    }

    /// Whether the target has the directory, so that it stays with its entries: the base's, or, in
    /// a copy, one at a path where the base has nothing.
    fn has_directory(
        &self,
        base: Option<&BaseObject>,
        in_copy: Option<&BaseObject>,
    ) -> Result<bool> {
        let there = match base {
            Some(_) if !self.target.is_copy() => return Ok(true),
            Some(base) => self.target.stat(&base.path)?,
            None => in_copy.map(|there| there.attr.clone()),
        };
        Ok(there.is_some_and(|there| there.kind == FileKind::Directory))
    }

    /// The target's directory that stays or moves with a change.
    pub(super) fn dir_there(&self, change: &Change) -> Result<Option<BaseAttr>> {
        let there = match change.before.as_ref().filter(|_| !change.is_link) {
            Some(base) => self.attr_there(base)?,
            None => self.only_in_copy(change)?.map(|there| there.attr),
        };
        Ok(there.filter(|there| there.kind == FileKind::Directory))
    }

    /// Keeps the times of directories that have no row in the session, though a file in them
    /// changed through another hard link, or another program whited it out. A directory whose own
    /// change is left out gets the session's time as well, but keeps its mode and owner.
    pub(super) fn directories_as_they_were(&mut self) -> Result<()> {
        let known: BTreeSet<_> = self.plan.steps.sets.iter().map(|set| set.path.clone()).collect();
        let moves = keep::moves(&self.plan.steps);
        let dirs: BTreeSet<_> =
            self.plan.changes.iter().map(|change| change.path.parent()).collect();
        for dir in dirs {
            let is_asked = self.options.selection.has(self.view, &dir, true);
            let path = target_path(&dir);
            if path.is_root() || known.contains(&path) || !is_asked {
                continue;
            }
            let found = self.view.find(&dir).map_err(|source| diff::at(&dir, source))?;
            let there = moves.before(&path).map(|before| self.target.stat(&before));
            if let (Some(found), Some(there)) = (found, there.transpose()?.flatten()) {
                let from = attrs_of(&there);
                let attrs = Attrs { mtime: found.attr().mtime, ..from.clone() };
                let (from, seen) = (Some(from), Some(SeenObject::without_ctime(&there)));
                self.plan.steps.sets.push(Set { path, attrs, from, seen, change: None });
            }
        }
        Ok(())
    }

    /// Notes a take that removes an object, and the time when the session hid the object.
    fn goes(&mut self, base: &BaseObject, slot: StagingSlot, since: Time) -> Result<()> {
        self.taken.insert(base.path.clone(), slot);
        // A copy may have another type there.
        let is_dir = |attr: &BaseAttr| attr.kind == FileKind::Directory;
        if is_dir(&base.attr) && self.attr_there(base)?.as_ref().is_some_and(is_dir) {
            let change = self.plan.changes.len() - 1;
            self.removed_dirs.push(RemovedBaseDir { top: base.path.clone(), since, change });
        }
        Ok(())
    }

    /// The base object at the destination that is neither this object nor moved away. If neither
    /// is a directory, it is returned, to be replaced atomically; otherwise it is taken first.
    fn replaced(
        &mut self,
        change: &Change,
        by_dir: bool,
        in_copy: Option<BaseObject>,
    ) -> Result<Option<SeenObject>> {
        let Some(base) = change.replaced.as_ref().or(in_copy.as_ref()) else { return Ok(None) };
        if by_dir || base.attr.kind == FileKind::Directory {
            if let Some(slot) = self.take(base, false)? {
                let ever = Time { secs: i64::MAX, nanos: 0 };
                let since = change.after.as_ref().map_or(ever, |after| after.attr().ctime);
                self.goes(base, slot, since)?;
            }
            return Ok(None);
        }
        self.seen(base)
    }

    /// The target's state of a base object. In the base itself, the state from which the change was
    /// computed, so that a later change is noticed before a take or put.
    fn seen(&self, base: &BaseObject) -> Result<Option<SeenObject>> {
        let there = self.target.stat(&base.path)?;
        let as_told = |there| if self.target.is_copy() { there } else { base.attr.clone() };
        Ok(there.map(as_told).as_ref().map(SeenObject::from))
    }

    /// Lets a put replace a base file that a client has renamed because the file was open.
    pub(super) fn replace_dropped(&mut self) -> Result<()> {
        for at in 0..self.plan.steps.puts.len() {
            let put = &self.plan.steps.puts[at];
            if put.over.is_some() || !self.renamed_open_files.contains(&put.to) {
                continue;
            }
            let there = self.target.stat(&put.to)?;
            let over = there.filter(|there| there.kind != FileKind::Directory);
            self.plan.steps.puts[at].over = over.as_ref().map(SeenObject::from);
        }
        Ok(())
    }

    /// The copy's object at the destination, if the base has none there.
    fn only_in_copy(&self, change: &Change) -> Result<Option<BaseObject>> {
        let Some(after) = change.after.as_ref().filter(|_| self.target.is_copy()) else {
            return Ok(None);
        };
        let path = target_path(after.path());
        if self.base_stat(&path)?.is_some() {
            return Ok(None);
        }
        Ok(self.target.stat(&path)?.map(|attr| BaseObject { path, attr }))
    }

    /// Whether a file has its base content, whatever its path and attributes are.
    fn is_kept(&mut self, after: &TreeObject, change: &Change) -> Result<bool> {
        let Some(base) = &change.before else { return Ok(false) };
        let (old, new) = (&base.attr, after.attr());
        if old.kind != new.kind {
            return Ok(false);
        }
        let is_same = old.fileid == new.fileid;
        let is_other = !is_same && !diff::is_saved_anew(base, after);
        if is_other && (change.is_link || old.nlink > 1 || new.nlink > 1) {
            return Ok(false);
        }
        if self.is_only_in_copy(&base.path)? {
            return match original_in_copy(true, change) {
                Some(original) if self.is_original(original, &base.path, old)? => {
                    Ok(!diff::differs_from_original(self.view, original, after)?)
                }
                _ => Ok(false),
            };
        }
        if self.target.is_copy() && self.is_other(base)? {
            return Ok(false);
        }
        if let Some(known) = self.kept.get(&after.locator()).filter(|_| is_same) {
            return Ok(*known);
        }
        let kept = match diff::content_differs(self.opened, self.view, base, after) {
            // A base file that cannot be read is noted as drift.
            Err(InspectError::Base { source: BaseError::Denied, .. }) => false,
            differs => !differs?,
        };
        self.kept.insert(after.locator(), kept);
        Ok(kept)
    }

    /// Keeps the host's object: renames it if it `moves`, or adds a hard link if it `is_link`.
    fn keep(
        &mut self,
        base: &BaseObject,
        (after, attrs): (&TreeObject, Attrs),
        (to, over): (BasePath, Option<SeenObject>),
        (moves, is_link): (bool, bool),
    ) -> Result<()> {
        let change = self.plan.changes.len() - 1;
        let is_dir = after.attr().kind == FileKind::Directory;
        let there = self.target.stat(&base.path)?;
        if moves || is_link {
            // If a file moved to several names, the first one is a rename and the others are links.
            let stays = is_link || self.taken.contains_key(&base.path);
            let Some(slot) = self.take(base, stays)? else {
                if !self.is_forced {
                    // The missing object is noted as drift.
                    return Ok(());
                }
                let what = format!("{}: not there", self.target.shown(&base.path).display());
                let advice = ApplyAdvice::CopyLacksMoved;
                return Err(InspectError::Refused { what, advice });
            };
            if !stays {
                self.taken.insert(base.path.clone(), slot);
            }
            self.counts().moves += u64::from(!stays);
            self.counts().links += u64::from(stays);
            let (dir, to) = (StagingDir::Taken, to.clone());
            let put = PutStep { slot, dir, to, over, made: None, change };
            self.plan.steps.puts.push(put);
        }
        if !is_dir {
            if !moves && !is_link {
                self.counts().attributes.add_file(&base.attr, &attrs);
            }
            self.note_loss_by_owner(base, (after.path(), &attrs))?;
            let seen = there.as_ref().map(SeenObject::without_ctime);
            let from = if self.target.is_copy() { there.as_ref() } else { Some(&base.attr) };
            let from = from.map(attrs_of);
            self.plan.steps.sets.push(Set { path: to, attrs, from, seen, change: Some(change) });
        }
        Ok(())
    }

    /// Adds a take of an object, or of a hard link if the object `stays`. `None` if there is no
    /// object, or if it is taken already.
    fn take(&mut self, base: &BaseObject, stays: bool) -> Result<Option<StagingSlot>> {
        let from = &base.path;
        self.target.check_may_go(from, stays)?;
        if !stays && self.taken.contains_key(from) {
            return Ok(None);
        }
        let Some(seen) = self.seen(base)? else { return Ok(None) };
        let (slot, change) = (self.slot(), self.plan.changes.len() - 1);
        self.plan.steps.takes.push(Take { slot, from: from.clone(), stays, seen, change });
        Ok(Some(slot))
    }

    /// Adds an object to be made, and its put.
    fn make_new(
        &mut self,
        (after, attrs): (&TreeObject, Attrs),
        (to, over): (BasePath, Option<SeenObject>),
        (replaces, merge): (Option<BasePath>, Option<Merge>),
    ) -> Result<()> {
        let (slot, attr) = (self.slot(), after.attr());
        // Two names of a file may be merged with two different files of the base.
        let made = (after.locator(), merge.as_ref().and_then(Merge::other_side));
        let link = match attr.kind {
            FileKind::Directory => None,
            _ => self.made.get(&made).copied(),
        };
        self.counts().links += u64::from(link.is_some());
        self.counts().new_dirs += u64::from(attr.kind == FileKind::Directory);
        if link.is_none() {
            self.made.insert(made, slot);
            self.counts().files += u64::from(attr.kind != FileKind::Directory);
            if attr.kind == FileKind::Regular {
                // A file that cannot be read is skipped when it is made.
                let data = self.view.data_bytes(after).unwrap_or(0);
                let counts = self.counts();
                counts.bytes = counts.bytes.saturating_add(attr.size);
                counts.data_bytes = counts.data_bytes.saturating_add(data);
            }
        }
        let change = self.plan.changes.len() - 1;
        let path = after.path().clone();
        let content = merge.map_or(StepContent::Session, |merge| merge.content);
        self.plan.makes.push(Make { slot, path, link, change, replaces, content, attrs });
        let dir = StagingDir::New;
        self.plan.steps.puts.push(PutStep { slot, dir, to, over, made: None, change });
        Ok(())
    }

    /// The size of the change that was noted last.
    pub(super) fn counts(&mut self) -> &mut ChangeSize {
        let change = self.plan.changes.len() - 1;
        self.counts.entry(change).or_default()
    }

    fn slot(&mut self) -> StagingSlot {
        self.slots += 1;
        self.slots
    }
}
