//! Makes the plan of an apply: which changes are chosen, and which others they require.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::advice::ApplyAdvice;
use super::audit_drift::{self, HiddenObject, RemovedBaseObject};
use super::drift::Drifted;
use super::merge::MergeOutcome;
use super::plan::{ApplyOptions, ApplyPlan, ChangeSize, attrs, attrs_of, fingerprint, target_path};
use super::steps::{AppliedChange, Set};
use super::target_dir::ApplyTarget;
use super::unchanged::Compared;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::diff::{self, Difference};
use crate::inspect::error::Result;
use crate::inspect::hunks::{ChosenHunks, ChosenPart};
use crate::inspect::log::is_top_set;
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::inspect::stop::StopFlag;
use crate::overlay::{BaseObject, Change, MergedParts, TreeObject, TreeView};
use crate::vfs::{FileId, FileKind, Locator, Time};
use crate::writeback::{Attrs, SeenObject, StagingSlot};

/// A base directory that the plan removes.
#[derive(Debug, Clone)]
pub(super) struct RemovedBaseDir {
    pub top: BasePath,
    /// When the session removed it; the greatest time if unknown, so that no entry counts as newer.
    pub since: Time,
    /// The change that removes it.
    pub change: usize,
}

/// A move that is left out.
#[derive(Debug, Clone)]
pub(super) struct LeftOutMove {
    /// The object's path in the session.
    pub to: MergedPath,
    /// The base no longer has the object; its origin still has the old path.
    pub is_removed: bool,
}

/// Paths at and below which drifted objects are overwritten (`session`) or left out (`base`).
#[derive(Debug, Default)]
pub(super) struct ConflictSides {
    pub session: Vec<MergedPath>,
    pub base: Vec<MergedPath>,
}

/// Makes an [`ApplyPlan`].
pub(super) struct Planner<'a> {
    pub opened: &'a OpenSession,
    pub view: &'a TreeView<'a>,
    pub target: &'a ApplyTarget<'a>,
    pub options: diff::DiffOptions,
    /// Only these changes and hunks are applied.
    pub(super) chosen: Option<Arc<ChosenHunks>>,
    /// Content of files that are applied only in part, by the change's path.
    pub(super) parts: BTreeMap<MergedPath, ChosenPart>,
    /// Drifted objects are overwritten.
    pub is_forced: bool,
    /// Set-user-ID files, set-group-ID files and devices are made.
    pub makes_special: bool,
    /// Text with conflicts is merged, with markers.
    pub(super) marks_conflicts: bool,
    /// Drifted objects are left out.
    pub(super) skips_drifted: bool,
    needs_difference: bool,
    pub(super) sides: ConflictSides,
    /// Share of each change in the plan's totals, by number.
    pub(super) counts: BTreeMap<usize, ChangeSize>,
    /// The changes of directories that stay where they are, by number.
    pub(super) attributes_of_dirs: HashSet<usize>,
    /// Changes that make a special object, by number.
    pub(super) special_changes: Vec<(usize, &'static str)>,
    /// Drifted objects, with the number of their change.
    pub(super) drifted_changes: Vec<(usize, Drifted)>,
    pub plan: ApplyPlan,
    /// The plan that the user agreed to; changes that differ from it are left out.
    pub(super) shown: Option<&'a ApplyPlan>,
    each: &'a mut dyn FnMut(&Difference),
    /// Paths of changes that are left out.
    pub(super) left_out: BTreeSet<MergedPath>,
    /// Changes in `left_out` whose object is a directory.
    dirs: HashMap<MergedPath, Change>,
    /// PlacedState-out moves, by the old path of the base object.
    pub(super) staying: HashMap<BasePath, LeftOutMove>,
    /// Old base paths of moved objects that the base no longer has, by change number.
    pub(super) removed_sources: HashMap<usize, BasePath>,
    /// Base files that a client moved to a name of its own temporary files (`.nfs*`), where they
    /// stay until they are closed.
    pub(super) renamed_open_files: HashSet<BasePath>,
    /// Slots of taken objects, by their path in the base.
    pub taken: HashMap<BasePath, StagingSlot>,
    /// Removed directories, whose entries are still to be checked.
    pub removed_dirs: Vec<RemovedBaseDir>,
    /// Their descendants, which the removing client may not have seen.
    pub removed_descendants: Vec<RemovedBaseObject>,
    /// Base objects that changed in the second in which the session removed them.
    pub same_second: Vec<RemovedBaseObject>,
    /// Base objects that the session hides, and that may have changed since.
    pub hidden: Vec<HiddenObject>,
    /// When the audit log begins, if there is one.
    pub log_begun: Option<Time>,
    /// Whether an object has the content of its base file.
    pub(super) kept: HashMap<Locator, bool>,
    /// The merge of the last change with the base, by its path: it is needed twice.
    pub(super) last_merge: Option<(MergedPath, MergeOutcome)>,
    /// Whiteouts that stay in directories that the base no longer has, once read.
    pub(super) kept_whiteouts: Option<BTreeSet<MergedPath>>,
    /// PlacedState-out changes of files with several hard links.
    pub(super) unchosen_names: Vec<Change>,
    /// Slots of made objects, for their other hard links; by the base file that each is merged
    /// with.
    pub(super) made: HashMap<(Locator, Option<FileId>), StagingSlot>,
    /// Numbers of changes with steps that are left out.
    pub(super) refused: HashSet<usize>,
    pub(super) slots: StagingSlot,
}

impl<'a> Planner<'a> {
    pub fn new(
        opened: &'a OpenSession,
        view: &'a TreeView<'a>,
        target: &'a ApplyTarget<'a>,
        options: &ApplyOptions,
        each: &'a mut dyn FnMut(&Difference),
    ) -> Self {
        let (is_forced, makes_special) = (options.force, options.special);
        let (marks_conflicts, skips_drifted) = (options.conflict_markers, options.skip_drifted);
        let (session, base) = (options.take_session.clone(), options.take_base.clone());
        let (chosen, needs_difference) = (options.chosen.clone(), options.needs_difference);
        let options = diff::DiffOptions {
            selection: options.selection.clone(),
            client_temp_files: options.client_temp_files,
            times: true,
            exact: true,
            stop: StopFlag::default(),
        };
        Self {
            opened,
            view,
            target,
            options,
            chosen,
            parts: BTreeMap::new(),
            is_forced,
            makes_special,
            marks_conflicts,
            skips_drifted,
            needs_difference,
            sides: ConflictSides { session, base },
            counts: BTreeMap::new(),
            attributes_of_dirs: HashSet::new(),
            special_changes: Vec::new(),
            drifted_changes: Vec::new(),
            plan: ApplyPlan::default(),
            shown: None,
            each,
            left_out: BTreeSet::new(),
            dirs: HashMap::new(),
            staying: HashMap::new(),
            removed_sources: HashMap::new(),
            renamed_open_files: HashSet::new(),
            taken: HashMap::new(),
            removed_dirs: Vec::new(),
            removed_descendants: Vec::new(),
            same_second: Vec::new(),
            hidden: Vec::new(),
            log_begun: None,
            kept: HashMap::new(),
            last_merge: None,
            kept_whiteouts: None,
            unchosen_names: Vec::new(),
            made: HashMap::new(),
            refused: HashSet::new(),
            slots: 0,
        }
    }

    /// Leaves out changes that the plan that was `shown` does not have in their current form.
    pub fn with_consent_to(self, shown: &'a ApplyPlan) -> Self {
        Self { shown: Some(shown), ..self }
    }

    /// Walks the session's changes and makes the plan.
    pub fn make(mut self) -> Result<ApplyPlan> {
        self.log_begun = audit_drift::begun(self.opened)?;
        self.top()?;
        let (mut failed, mut denied) = (None, Vec::new());
        let view = self.view;
        let mut each = |change| {
            failed = self.change(change).err();
            failed.is_none()
        };
        let through = view.changes_past_denied(&mut each, &mut |change| denied.push(change));
        if let Some(error) = failed {
            return Err(error);
        }
        through?;
        self.leave_out_denied(denied)?;
        self.removals_in_copy()?;
        self.directories_as_they_were()?;
        self.find_drift_in_removed_dirs()?;
        self.find_drift_by_log()?;
        self.find_drift_in_same_second()?;
        self.resolve_drift()?;
        self.leave_out_special_changes();
        self.leave_out_git_dirs()?;
        self.leave_out_mounts();
        self.refuse_removal_of_unseen()?;
        self.leave_out_dependents()?;
        self.drop_other_names();
        let plan = &self.plan;
        self.counts.retain(|change, _| !plan.undecided.contains(&plan.changes[*change].path));
        self.plan.count(self.counts.values());
        for at in 0..self.plan.changes.len() {
            let is_whole = !self.has_left_out(&self.plan.changes[at].path);
            self.plan.changes[at].is_whole = is_whole;
        }
        self.replace_dropped()?;
        let of_top = |path: &BasePath| path.components().count() == 1;
        let steps = &mut self.plan.steps;
        if self.left_out.contains(&MergedPath::root())
            && (steps.takes.iter().any(|take| of_top(&take.from))
                || steps.puts.iter().any(|put| of_top(&put.to)))
        {
            // Its entries change, so its times do too.
            self.plan.top = None;
        }
        steps.sort();
        self.check_directories()?;
        self.check_chosen()?;
        self.note_vanished_changes();
        if self.needs_difference {
            self.plan.drop_times_alone(&self.target.top);
        }
        Ok(self.plan)
    }

    /// Compares the top, which is no entry of a directory.
    fn top(&mut self) -> Result<()> {
        let (root, top) = (MergedPath::root(), BasePath::root());
        let is_asked = self.options.selection.has(self.view, &root, true)
            && self.chosen.as_ref().is_none_or(|chosen| chosen.contains_key(&root));
        if self.opened.base_path().is_none() {
            return Ok(());
        }
        if !is_asked {
            self.left_out.insert(root);
            self.plan.top = Some(attrs_of(&self.target.top));
            return Ok(());
        }
        let after = self.view.root().map_err(|source| diff::at(&root, source))?;
        let attr = if self.target.is_copy() { self.base_stat(&top)? } else { None };
        let attr = attr.unwrap_or_else(|| self.target.top.clone());
        let before = BaseObject { path: top, attr };
        let mut differs =
            diff::differences(self.opened, self.view, &self.options, &before, &after)?;
        let mut top = attrs(&after);
        // Its row exists since the session was created, so the host's attributes may be newer.
        let is_newer = before.attr.mtime > top.mtime && !self.target.is_copy();
        if (differs.mode || differs.owner || is_newer) && !is_top_set(self.opened)? {
            top = Attrs { mtime: top.mtime, ..attrs_of(&before.attr) };
            (differs.mode, differs.owner) = (false, false);
            if is_newer {
                (top.mtime, differs.mtime) = (before.attr.mtime, false);
            }
        }
        self.plan.top = Some(top);
        if differs != diff::ChangedFields::default() {
            let difference = diff::of_top(before, after, differs);
            self.note(&difference)?;
            self.counts().attributes.dirs += u64::from(differs.mode || differs.owner);
        }
        Ok(())
    }

    pub(super) fn change(&mut self, change: Change) -> Result<()> {
        let Some(change) = self.as_in_copy(change)? else { return Ok(()) };
        self.note_chosen_inside(&change)?;
        if !diff::is_chosen(&self.options, self.view, &change)
            || !self.is_picked(&change)
            || self.leave_out_if_split(&change)?
            || self.leave_out_if_hidden(&change)?
            || self.leave_out_if_special(&change)?
            || self.leave_out_if_changed(&change)?
            || self.leave_out_if_vanished(&change)?
            || self.leave_out_if_its_directory_stays(&change)?
        {
            self.note_excluded_move(&change);
            self.left_out.insert(change.path.clone());
            self.note_unchosen_name(&change);
            let to = change.path.clone();
            if let (Some(base), Some(after)) = (&change.before, &change.after)
                && is_moved(&change, base, after)
            {
                let left = LeftOutMove { to, is_removed: false };
                match diff::is_dropping(&change.path) {
                    false => drop(self.staying.insert(base.path.clone(), left)),
                    true if change.is_drifted => {}
                    true => drop(self.renamed_open_files.insert(base.path.clone())),
                }
            } else if let Some(from) = removed_source(&change) {
                self.staying.insert(from.clone(), LeftOutMove { to, is_removed: true });
            }
            let is_dir = |object: &TreeObject| object.attr().kind == FileKind::Directory;
            if change.after.as_ref().is_some_and(is_dir) {
                self.dirs.insert(change.path.clone(), change);
            }
            return Ok(());
        }
        self.directories_above(&change.path)?;
        self.chosen(change)
    }

    pub(super) fn difference(&self, change: Change) -> Result<Option<Difference>> {
        let options = diff::DiffOptions {
            selection: Selection::default(),
            client_temp_files: true,
            ..self.options.clone()
        };
        diff::compare(self.opened, self.view, &options, change)
    }

    fn chosen(&mut self, change: Change) -> Result<()> {
        let print = fingerprint(&change);
        let dir = change.after.as_ref().filter(|after| after.attr().kind == FileKind::Directory);
        let dir = match dir {
            Some(after) => {
                let there = self.dir_there(&change)?;
                let (attrs, merged) = self.attrs_of_dir(&change, after)?;
                Some((target_path(after.path()), attrs, there, merged))
            }
            None => None,
        };
        let Compared { difference, dropped, holds_no_change, is_set_alike } =
            self.compared(change)?;
        if is_set_alike {
            self.plan.set_alike.insert(print);
        }
        self.plan.unchanged.extend(dropped);
        let number = difference.as_ref().map(|_| self.plan.changes.len());
        match difference {
            Some(difference) => {
                self.plan.fingerprints.insert(print);
                self.note(&difference)?;
                self.add(&difference)?;
            }
            None => drop(self.plan.without_difference.insert(print)),
        }
        if let Some((path, attrs, there, merged)) =
            dir.filter(|_| !holds_no_change || number.is_some())
        {
            let from = there.as_ref().map(attrs_of);
            let seen = there.as_ref().map(SeenObject::without_ctime);
            self.plan.steps.sets.push(Set { path, attrs, from, seen, change: number });
            if let Some(number) = number {
                self.plan.changes[number].merged = merged;
            }
        }
        Ok(())
    }

    /// Adds a difference to the plan's changes.
    fn note(&mut self, difference: &Difference) -> Result<()> {
        (self.each)(difference);
        let change = &difference.change;
        let before = change.before.as_ref().filter(|_| !change.is_link);
        let from = before.map(|before| MergedPath::of_base(&before.path));
        let object = change.after.as_ref();
        let planned = self.view.name_state(&change.path);
        let planned = planned.map_err(|source| diff::at(&change.path, source))?;
        if let Some(from) = removed_source(change) {
            self.removed_sources.insert(self.plan.changes.len(), from.clone());
        }
        self.plan.changes.push(AppliedChange {
            path: change.path.clone(),
            from: from.filter(|from| *from != change.path),
            object: object.map(|after| (after.attr().fileid, after.attr().ctime)),
            is_whole: true,
            planned: Some(planned),
            base_ctime: None,
            not_given: None,
            merged: MergedParts::default(),
            was_linked: before
                .is_some_and(|base| base.attr.kind != FileKind::Directory && base.attr.nlink > 1),
            part: self.part_of(change).cloned(),
            paths: u64::from(!diff::is_time_of_directory(difference)),
        });
        Ok(())
    }

    /// Also chooses directories above a path that only the session has. Refuses a path in a
    /// directory that moved and is left out: the target does not have that path.
    fn directories_above(&mut self, path: &MergedPath) -> Result<()> {
        if let Some(moved) = self.moved_above(path) {
            let what = format!("{}: in {}, which was moved", path.display(), moved.display());
            return Err(InspectError::Refused { what, advice: ApplyAdvice::NameMovedDir });
        }
        for above in self.left_out_above(path) {
            let is_there = self.dirs.get(&above).and_then(|change| change.before.as_ref());
            let is_there = is_there.is_some_and(|base| base.attr.kind == FileKind::Directory);
            if !is_there && let Some(change) = self.dirs.remove(&above) {
                self.left_out.remove(&above);
                self.chosen(change)?;
            }
        }
        Ok(())
    }

    /// The first directory above a path that was moved, and is left out.
    pub(super) fn moved_above(&self, path: &MergedPath) -> Option<MergedPath> {
        self.left_out_above(path).into_iter().find(|above| {
            let change = self.dirs.get(above);
            change.is_some_and(|change| match (&change.before, &change.after) {
                (Some(base), Some(after)) => {
                    base.attr.kind == FileKind::Directory && is_moved(change, base, after)
                }
                _ => false,
            })
        })
    }

    /// The directories above a path that changed and are left out, from the top down.
    fn left_out_above(&self, path: &MergedPath) -> Vec<MergedPath> {
        if self.dirs.is_empty() {
            return Vec::new();
        }
        let (mut above, mut found) = (MergedPath::root(), Vec::new());
        let names: Vec<_> = path.names().collect();
        for name in names.iter().take(names.len().saturating_sub(1)) {
            above = above.join(name);
            if self.dirs.contains_key(&above) {
                found.push(above.clone());
            }
        }
        found
    }

    fn has_left_out(&self, path: &MergedPath) -> bool {
        self.left_out.contains(path) || path.first_below(&self.left_out).is_some()
    }
}

/// Whether a change moves the base's object itself, and not only a directory above it.
fn is_moved(change: &Change, base: &BaseObject, after: &TreeObject) -> bool {
    let is_elsewhere = MergedPath::of_base(&base.path) != *after.path() || change.is_moved;
    is_elsewhere && !change.is_link && !change.moved_with_parent
}

/// Old base path of a moved object that the base no longer has.
fn removed_source(change: &Change) -> Option<&BasePath> {
    let is_removed = change.before.is_none() && change.is_moved && !change.is_link;
    let origin = change.after.as_ref().filter(|_| is_removed)?.origin()?;
    Some(&origin.path)
}
