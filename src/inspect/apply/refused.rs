//! Changes that a plan leaves out by default, and attributes of host objects that it loses.
//!
//! Set-user-ID files and device nodes of a client would grant rights of the user who applies: they
//! need an option. A directory with entries that the removing client never saw is removed only if
//! it is named. Hidden paths are never overwritten or removed.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use super::Skipped;
use super::audit_drift::{self, RemovedBaseObject};
use super::plan::{ApplyPlan, Loss, Special, attrs, target_path};
use super::planner::{LeftOutMove, Planner};
use super::target_dir::base_error;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::diff::{self, Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::inspect::split;
use crate::overlay::{BaseObject, Change, DeniedChange, TreeObject};
use crate::vfs::{FileKind, FsError};
use crate::writeback::Attrs;

/// The set-user-ID and set-group-ID bits.
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

impl Planner<'_> {
    /// Leaves out a change at a hidden path, and a move of a base directory that would reveal a
    /// hidden path in it; returns whether it did.
    pub(super) fn leave_out_if_hidden(&mut self, change: &Change) -> Result<bool> {
        let hidden = self.opened.session().hidden();
        let Some(after) = change.after.as_ref().filter(|_| !hidden.is_empty()) else {
            return Ok(false);
        };
        let to = target_path(after.path());
        let moved = change.before.as_ref().filter(|base| {
            let is_dir = |kind| kind == FileKind::Directory;
            is_dir(base.attr.kind) && is_dir(after.attr().kind) && base.path != to
        });
        let why = if hidden.covers(to.as_bytes()) {
            "the session hides this path: what the base has there stays as it is"
        } else if let Some(base) = moved
            && self.uncovers(&base.path, &to)?
        {
            "what the session hides in it would show at the new path"
        } else {
            return Ok(false);
        };
        let skipped = Skipped { path: change.path.clone(), why: why.to_owned() };
        self.plan.left_out.push(skipped);
        Ok(true)
    }

    /// Whether the directory `from` has a hidden entry that would not be hidden in `to`. Only a
    /// pattern with a slash depends on the directory.
    fn uncovers(&self, from: &BasePath, to: &BasePath) -> Result<bool> {
        let hidden = self.opened.session().hidden();
        if !hidden.patterns().iter().any(|pattern| pattern.as_str().contains('/')) {
            return Ok(false);
        }
        let mut open = vec![(from.clone(), to.clone())];
        while let Some((from, to)) = open.pop() {
            let failed = |source| base_error(&self.target.shown(&from), source);
            let listing = self.target.reader().list(&from).map_err(failed)?;
            for entry in &listing.entries {
                let (from, to) = (from.join(&entry.name), to.join(&entry.name));
                match (hidden.covers(from.as_bytes()), hidden.covers(to.as_bytes())) {
                    (true, false) => return Ok(true),
                    (true, true) => {}
                    (false, _) => {
                        let found = self.target.stat(&from)?;
                        if found.is_some_and(|found| found.kind == FileKind::Directory) {
                            open.push((from, to));
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Leaves out changes that cannot be compared, because the base denies access to what they
    /// change, unless one of them is chosen.
    pub(super) fn leave_out_denied(&mut self, denied: Vec<DeniedChange>) -> Result<()> {
        for DeniedChange { path, from } in denied {
            let is_picked = self.chosen.as_ref().is_none_or(|chosen| chosen.contains_key(&path));
            if is_picked && self.options.selection.has(self.view, &path, true) {
                return Err(InspectError::at(&path, FsError::Access));
            }
            if let Some(from) = from.filter(|from| MergedPath::of_base(from) != path) {
                let left = LeftOutMove { to: path.clone(), is_removed: false };
                self.staying.insert(from, left);
            }
            self.left_out.insert(path);
        }
        Ok(())
    }

    /// Leaves out a change that makes a special object, unless an option allows these; returns
    /// whether it did. Set-ID bits that the session did not set are left to
    /// [`note_special`](Self::note_special): the base may have removed them.
    pub(super) fn leave_out_if_special(&mut self, change: &Change) -> Result<bool> {
        let Some(after) = change.after.as_ref().filter(|after| !keeps_set_id(change, after)) else {
            return Ok(false);
        };
        let Some(what) = self.special(change, &attrs(after), false)? else { return Ok(false) };
        // The base may have it already. If it had it when the plan was shown, and took it back, the
        // change is left out as another one than was shown.
        if self.had_no_difference(change) || self.compared(change.clone())?.difference.is_none() {
            return Ok(false);
        }
        let path = change.path.clone();
        if self.makes_special {
            self.plan.special.push(Special { path, what });
            return Ok(false);
        }
        let why = format!("{what}: not made by default");
        self.plan.leaves_special_out = true;
        self.plan.left_out.push(Skipped { path, why });
        Ok(true)
    }

    /// Leaves out a change that removes or moves a directory with an entry that is not selected;
    /// returns whether it did.
    pub(super) fn leave_out_if_split(&mut self, change: &Change) -> Result<bool> {
        let kept = split::first_unselected(self.opened, self.view, &self.options, change)?;
        let Some(kept) = kept else { return Ok(false) };
        let kept = kept.display();
        let why = format!(
            "holds {kept}, which is not chosen: a directory is removed or moved only as a whole"
        );
        self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        self.plan.split.push(change.path.clone());
        Ok(true)
    }

    /// Notes a move that is left out because one of its two paths is excluded, and selected by the
    /// other.
    pub(super) fn note_excluded_move(&mut self, change: &Change) {
        if let Some(excluded) = self.options.selection.excluded_path_of_move(&change.path) {
            let why = format!("it was moved, and {} is excluded", excluded.display());
            self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        }
    }

    /// Notes that a removed directory stays because only something in it is chosen.
    pub(super) fn note_chosen_inside(&mut self, change: &Change) -> Result<()> {
        let chosen = split::first_selected(self.opened, self.view, &self.options, change)?;
        if let Some(chosen) = chosen {
            let why = format!(
                "was removed whole, with {}, which is chosen: name the directory to remove it",
                chosen.display()
            );
            self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        }
        Ok(())
    }

    /// Notes the change that was noted last if its object, with the merged attributes `attrs`, is a
    /// special one. The object `is_kept` if its content is the base's.
    pub(super) fn note_special(
        &mut self,
        change: &Change,
        attrs: &Attrs,
        is_kept: bool,
    ) -> Result<()> {
        if let Some(what) = self.special(change, attrs, is_kept)? {
            self.special_changes.push((self.plan.changes.len() - 1, what));
        }
        Ok(())
    }

    /// Leaves out the changes that [`note_special`](Self::note_special) noted, unless an option
    /// allows them. Those that wait for a decision about drift are refused as a whole.
    pub(super) fn leave_out_special_changes(&mut self) {
        for (number, what) in std::mem::take(&mut self.special_changes) {
            let path = self.plan.changes[number].path.clone();
            if self.makes_special {
                if self.plan.special.iter().all(|special| special.path != path) {
                    self.plan.special.push(Special { path, what });
                }
            } else if !self.plan.undecided.contains(&path) {
                self.plan.leaves_special_out = true;
                let why = format!("{what}: not made by default");
                self.refuse(number, Skipped { path, why });
            }
        }
    }

    /// The kind of special object that a change makes with the attributes `attr`; `None` if the
    /// base already has the same.
    fn special(
        &self,
        change: &Change,
        attr: &Attrs,
        is_kept: bool,
    ) -> Result<Option<&'static str>> {
        let Some(after) = &change.after else { return Ok(None) };
        let before = change.before.as_ref();
        let before = before.filter(|base| base.attr.kind == attr.kind);
        let before = match before {
            Some(base) if self.is_only_in_copy(&base.path)? => None,
            before => before,
        };
        let what = match attr.kind {
            FileKind::Block => "a block device",
            FileKind::Character => "a character device",
            FileKind::Regular if attr.mode & SET_UID != 0 => "a set-user-ID file",
            FileKind::Regular if attr.mode & SET_GID != 0 => "a set-group-ID file",
            _ => return Ok(None),
        };
        let Some(base) = before else { return Ok(Some(what)) };
        let (old, added) = (&base.attr, attr.mode & !base.attr.mode & (SET_UID | SET_GID));
        let is_known = match attr.kind {
            FileKind::Regular => added == 0 && (old.uid, old.gid) == (attr.uid, attr.gid),
            _ => true,
        };
        let has_content = || -> Result<bool> {
            Ok(is_kept || !diff::content_differs(self.opened, self.view, base, after)?)
        };
        let is_known = is_known && has_content()?;
        Ok((!is_known).then_some(what))
    }

    /// Records the extended attributes that the replacement of an object does not get.
    pub(super) fn note_losses(&mut self, difference: &Difference, is_carried: bool) -> Result<()> {
        let change = &difference.change;
        let before = change.before.as_ref().filter(|_| !change.is_link);
        let Some(base) =
            before.filter(|_| is_carried || difference.kind == DifferenceKind::Retyped)
        else {
            return Ok(());
        };
        let mut xattrs = self.target.xattrs(&base.path)?;
        let (names, why) = match is_carried {
            true => (xattrs.take_bound(), "its content differs, or only root may set them"),
            false => (xattrs.names(), "its type differs"),
        };
        self.note_loss(&change.path, names, why);
        Ok(())
    }

    /// Records lost file capabilities: the kernel removes them when the owner changes.
    pub(super) fn note_loss_by_owner(
        &mut self,
        base: &BaseObject,
        (path, new): (&MergedPath, &Attrs),
    ) -> Result<()> {
        let old = &base.attr;
        if (old.uid, old.gid) == (new.uid, new.gid) || new.kind != FileKind::Regular {
            return Ok(());
        }
        let mut names = self.target.xattrs(&base.path)?.names();
        names.retain(|name| name == "security.capability");
        self.note_loss(path, names, "its owner differs");
        Ok(())
    }

    fn note_loss(&mut self, path: &MergedPath, names: Vec<String>, why: &'static str) {
        if !names.is_empty() {
            self.plan.losses.push(Loss { path: path.clone(), names, why });
        }
    }

    /// Leaves out the removal of a directory with an entry whose removal is not in the audit log:
    /// it may have been hidden from the client. A directory selected by its path is removed.
    pub(super) fn refuse_removal_of_unseen(&mut self) -> Result<()> {
        let inside = std::mem::take(&mut self.removed_descendants);
        let opened = self.opened;
        let is_hidden = |i: &RemovedBaseObject| opened.session().hidden().covers(i.path.as_bytes());
        let (hidden, inside): (Vec<_>, Vec<_>) = inside.into_iter().partition(is_hidden);
        for RemovedBaseObject { path, change, .. } in hidden {
            let path = MergedPath::of_base(&path);
            self.refuse_removal(change, format!("holds {}, which is hidden", path.display()));
        }
        let is_named = |plan: &ApplyPlan, path: &BasePath, change: usize| {
            let home = MergedPath::of_base(path);
            let removed = plan.changes.get(change).map(|change| change.path.clone());
            let asked = &self.options.selection;
            asked.names(&home) || removed.as_ref().is_some_and(|removed| asked.names(removed))
        };
        // An object newer than its removal is drift, with all its descendants. Drift above a
        // removed object, or in another change, says nothing about it.
        let late: HashSet<_> = self.drifted_changes.iter().map(|(c, d)| (*c, &d.path)).collect();
        let is_late = |inside: &RemovedBaseObject| {
            let home = MergedPath::of_base(&inside.path);
            let is_late = |path: MergedPath| late.contains(&(inside.change, &path));
            home.above().any(is_late) || is_late(home)
        };
        let inside: Vec<_> = inside
            .into_iter()
            .filter(|i| !is_named(&self.plan, &i.path, i.change) && !is_late(i))
            .collect();
        for (RemovedBaseObject { path, change, .. }, place) in
            audit_drift::never_removed(self.opened, inside)?
        {
            // It moved with a directory that a client moved, and still shows.
            let there = self.view.find(&place).map_err(|source| diff::at(&place, source));
            if there?.is_some() {
                continue;
            }
            let hidden = MergedPath::of_base(&path);
            let why = format!(
                "holds {}, which no client removed (hidden from clients?): the directory is \
                 removed only if it is named",
                hidden.display()
            );
            self.refuse_removal(change, why);
        }
        Ok(())
    }

    /// Leaves out the changes that remove, replace or move a directory above a mount point: the
    /// mounted filesystem would go with the directory.
    pub(super) fn leave_out_mounts(&mut self) {
        let mounts = self.target.dir.mounts_below();
        let takes = self.plan.steps.takes.iter();
        let mounted: Vec<_> = takes
            .filter(|take| !take.stays && take.seen.is_dir())
            .filter_map(|take| Some((take.change, mounted_below(&take.from, &mounts)?.clone())))
            .collect();
        for (change, mount) in mounted {
            self.refuse_removal(change, mounted_at(&mount));
        }
    }

    /// Leaves out the change with this number, which removes a directory.
    fn refuse_removal(&mut self, change: usize, why: String) {
        if let Some(removes) = self.plan.changes.get(change) {
            let path = removes.path.clone();
            self.refuse(change, Skipped { path, why });
        }
    }

    /// Leaves out a change that already has steps; repeated calls have no effect.
    pub(super) fn refuse(&mut self, change: usize, skipped: Skipped) {
        if !self.refused.insert(change) {
            return;
        }
        self.left_out.insert(skipped.path.clone());
        self.plan.left_out.push(skipped.clone());
        self.plan.refused.push((change, skipped));
    }
}

/// Whether a file has the set-ID bits of its original.
fn keeps_set_id(change: &Change, after: &TreeObject) -> bool {
    let (attr, bits) = (after.attr(), SET_UID | SET_GID);
    let original = change.original.as_ref().filter(|_| attr.kind == FileKind::Regular);
    original.is_some_and(|o| o.kind == attr.kind && o.mode & bits == attr.mode & bits)
}

/// A mount point below a directory.
pub(super) fn mounted_below<'a>(
    dir: &BasePath,
    mounts: &'a BTreeSet<BasePath>,
) -> Option<&'a BasePath> {
    let below = [dir.as_bytes(), b"/"].concat();
    let from = (Bound::Excluded(below.as_slice()), Bound::Unbounded);
    mounts.range::<[u8], _>(from).next().filter(|mount| mount.as_bytes().starts_with(&below))
}

/// Why a directory above this mount point stays.
pub(super) fn mounted_at(mount: &BasePath) -> String {
    let mount = MergedPath::of_base(mount);
    format!("another filesystem is mounted below it, at {}", mount.display())
}
