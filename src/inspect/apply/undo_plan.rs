//! The steps that undo an apply, and the drift that prevents some of them.
//!
//! Placed objects are removed, or moved back to their old paths. Replaced and removed objects are
//! made from the kept ones, and put at their old paths. Then the old attributes are set.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Skipped;
use super::keep::kept_name;
use super::locked_dirs::OpenedDir;
use super::record::{Before, Moves, Placed, PlacedDescendant, Record, RemovedByApply};
use super::steps::{PutStep, Steps, Take};
use super::target_dir::ApplyTarget;
use super::undo_change::{DirContents, UndoChange, UndoDrift, UndoKind};
use super::undo_drift::{GoingNames, Holders, LeftObject};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{Attrs, SeenObject, StagingDir, StagingSlot, TargetObject};

/// How an undo treats objects that changed since the apply.
#[derive(Debug, Clone, Default)]
pub struct UndoOptions {
    /// Remove or overwrite them too.
    pub force: bool,
    /// Leave them out.
    pub skip_drifted: bool,
    /// Keep objects that the undo itself replaces and removes, up to this many bytes; `None` keeps
    /// nothing.
    pub keep: Option<u64>,
}

/// What an undo would do.
#[derive(Debug, Default)]
pub struct UndoPlan {
    /// The apply was already undone, and is repeated.
    pub is_redo: bool,
    /// Changes, sorted by path.
    pub changes: Vec<UndoChange>,
    /// Objects that changed since the apply, and that the undo would lose.
    pub drifted: Vec<UndoDrift>,
    /// Directories that stay because of an entry that stays.
    pub holders: Vec<Skipped>,
    /// Number of directories that only get their times back.
    pub times: u64,
    /// Objects that the undo itself replaces and removes, in bytes on disk.
    pub kept_bytes: u64,
    pub(super) steps: Steps,
    pub(super) restores: Vec<Restore>,
    /// Current paths of the objects that others replace.
    pub(super) replaced: HashSet<BasePath>,
    pub(super) top: Option<Attrs>,
    /// Numbers of the changes that are left out.
    pub(super) left_out: HashSet<usize>,
    /// The number of the change of each of `holders`.
    pub(super) holder_changes: Vec<usize>,
}

impl UndoPlan {
    /// Current paths of the objects that are moved back.
    pub(super) fn moved(&self) -> impl Iterator<Item = &BasePath> {
        let puts = self.steps.puts.iter().filter(|put| put.dir == StagingDir::Taken);
        let put: HashSet<StagingSlot> = puts.map(|put| put.slot).collect();
        let takes = self.steps.takes.iter();
        takes.filter(move |take| put.contains(&take.slot)).map(|take| &take.from)
    }
}

/// An object that is made from a kept one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Restore {
    /// Its slot in staging.
    pub slot: StagingSlot,
    /// Slot and name of the kept object.
    pub kept: StagingSlot,
    pub name: Vec<u8>,
    /// Its path in the target.
    pub path: BasePath,
}

pub(super) const CHANGED: &str = "changed since it was applied";
pub(super) const GONE: &str = "gone since it was applied";
const CAME: &str = "came there since the apply";
const NO_DIRECTORY: &str = "its directory is gone since it was applied";

/// Makes an [`UndoPlan`].
pub(super) struct UndoPlanner<'a> {
    pub(super) target: &'a ApplyTarget<'a>,
    pub(super) record: &'a Record,
    options: &'a UndoOptions,
    pub(super) moves: Moves,
    /// Descendants of directories that were placed as a whole.
    inside: HashMap<&'a BasePath, &'a PlacedDescendant>,
    /// Attributes, while closed, of the directories that are open now.
    opened: HashMap<&'a BasePath, &'a Attrs>,
    /// Hard links that the undo removes.
    going: GoingNames,
    /// All placed paths.
    placed: HashSet<&'a BasePath>,
    /// The current object at each placed path.
    now: Vec<Option<TargetObject>>,
    /// The current object of each [`Before`], by its path before.
    pub(super) set_now: HashMap<&'a BasePath, TargetObject>,
    drifts: BTreeMap<(usize, MergedPath), UndoDrift>,
    holders: Holders<'a>,
    pub(super) left_out: HashSet<usize>,
    /// Objects in the way, which are removed, with the change's number; by path.
    in_the_way: BTreeMap<BasePath, (TargetObject, usize)>,
    slots: StagingSlot,
}

impl<'a> UndoPlanner<'a> {
    pub fn new(
        target: &'a ApplyTarget<'a>,
        record: &'a Record,
        options: &'a UndoOptions,
        opened: &'a [OpenedDir],
    ) -> Self {
        Self {
            opened: opened.iter().map(|opened| (&opened.path, &opened.attrs)).collect(),
            target,
            record,
            options,
            moves: record.moves(),
            inside: record.inside.iter().map(|inside| (&inside.path, inside)).collect(),
            going: GoingNames::of(record),
            placed: record.placed.iter().map(|placed| &placed.path).collect(),
            now: Vec::new(),
            set_now: HashMap::new(),
            drifts: BTreeMap::new(),
            holders: Holders::default(),
            left_out: HashSet::new(),
            in_the_way: BTreeMap::new(),
            slots: 0,
        }
    }

    pub fn make(mut self) -> Result<UndoPlan> {
        for placed in &self.record.placed {
            let now = self.object(&placed.path)?;
            self.compare(placed, now.as_ref())?;
            self.now.push(now);
        }
        self.compare_attributes()?;
        // A change that is left out may obstruct others.
        loop {
            let known = (self.left_out.len(), self.in_the_way.len());
            self.look_for_others()?;
            if known == (self.left_out.len(), self.in_the_way.len()) {
                break;
            }
        }
        let mut plan = UndoPlan { is_redo: self.record.is_undone, ..UndoPlan::default() };
        self.add_placed(&mut plan);
        self.add_removed(&mut plan);
        for (path, (object, change)) in std::mem::take(&mut self.in_the_way) {
            let (slot, seen) = (self.slot(), object.seen);
            plan.steps.takes.push(Take { slot, from: path, stays: false, seen, change });
        }
        self.add_sets(&mut plan);
        self.list(&mut plan);
        self.forget_ctimes(&mut plan);
        plan.steps.sort();
        (plan.holder_changes, plan.holders) = self.holders.named().unzip();
        plan.drifted = self.drifts.into_values().collect();
        plan.left_out = self.left_out;
        Ok(plan)
    }

    /// Records drift and leaves its change out, unless `force` is set and nothing is lost.
    pub(super) fn note(
        &mut self,
        path: &BasePath,
        why: &'static str,
        is_lost: bool,
        change: usize,
    ) {
        let path = MergedPath::of_base(path);
        if is_lost || !self.options.force {
            self.left_out.insert(change);
        }
        let drift = UndoDrift { path: path.clone(), why, is_lost, change };
        self.drifts.entry((change, path)).or_insert(drift);
    }

    /// Compares the object at a placed path with the one that was left there.
    fn compare(&mut self, placed: &Placed, now: Option<&TargetObject>) -> Result<()> {
        let is_needed = placed.from.is_some() || placed.over.is_some();
        match (&placed.left, now) {
            // Already removed, as by the undo.
            (_, None) if !is_needed => {}
            (_, None) => self.note(&placed.path, GONE, placed.from.is_some(), placed.change),
            (None, Some(_)) => self.note(&placed.path, CAME, false, placed.change),
            (Some(left), Some(now)) => {
                // An object that is moved back keeps its mode, so no other hard link may have
                // changed that.
                let going =
                    if placed.from.is_none() { &self.going } else { &GoingNames::default() };
                let mut left = LeftObject::from(left);
                if now.is_dir() && placed.from.is_some() {
                    // It keeps its mode, or gets the one that it had.
                    left.owner = None;
                }
                if !left.is_now(&self.target.dir, &placed.path, now, going)? {
                    // A directory is not replaced by a file.
                    let is_lost = now.is_dir() && placed.from.is_none() && placed.over.is_some();
                    self.note(&placed.path, CHANGED, is_lost, placed.change);
                }
            }
        }
        Ok(())
    }

    /// Placed paths whose objects are removed or moved back, with the current object.
    fn taken(&self) -> HashMap<&'a BasePath, &TargetObject> {
        let placed = self.record.placed.iter().zip(&self.now);
        let taken = placed.filter(|(placed, _)| !self.left_out.contains(&placed.change));
        let taken = taken.filter(|(placed, _)| placed.from.is_some() || placed.over.is_none());
        taken.filter_map(|(placed, now)| Some((&placed.path, now.as_ref()?))).collect()
    }

    /// Finds unknown entries of removed directories, and objects in the way.
    fn look_for_others(&mut self) -> Result<()> {
        let record = self.record;
        let (mut found, mut inside) = (Vec::new(), Vec::new());
        {
            let taken = self.taken();
            for placed in record.placed.iter().filter(|placed| placed.from.is_none()) {
                if !taken.get(&placed.path).is_some_and(|now| now.is_dir()) {
                    continue;
                }
                self.look_inside(placed, &taken, &mut |path, why| {
                    inside.push((path, placed, why));
                })?;
            }
            let removed = record.removed.iter().map(|r| (&r.path, r.change));
            let moved = record.placed.iter().filter_map(|p| Some((p.from.as_ref()?, p.change)));
            for (path, change) in removed.chain(moved) {
                if self.left_out.contains(&change) {
                    continue;
                }
                if !self.has_directory(path)? {
                    found.push((path.clone(), change, NO_DIRECTORY, false));
                } else if let Some(there) = self.moves.entry_after(path)
                    && !taken.contains_key(&there)
                    && !self.in_the_way.contains_key(&there)
                    && self.object(&there)?.is_some()
                {
                    found.push((there, change, CAME, true));
                }
            }
        }
        for (path, placed, why) in inside {
            if let Some(why) = why {
                self.note(&path, why, false, placed.change);
            }
            if !self.options.force {
                self.left_out.insert(placed.change);
                self.holders.add(placed, path);
            }
        }
        for (path, change, why, is_in_the_way) in found {
            self.note(&path, why, why == NO_DIRECTORY, change);
            if self.options.force
                && is_in_the_way
                && let Some(object) = self.object(&path)?
            {
                self.target.check_may_go(&path, false)?;
                self.in_the_way.insert(path, (object, change));
            }
        }
        Ok(())
    }

    /// Whether the directory to which an object returns exists, or is restored too.
    fn has_directory(&self, before: &BasePath) -> Result<bool> {
        let Some((dir, _)) = before.split() else { return Ok(true) };
        let is_above = |removed: &RemovedByApply| {
            let rest = dir.as_bytes().strip_prefix(removed.path.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        if dir.is_root() || self.record.removed.iter().any(is_above) {
            return Ok(true);
        }
        let Some(dir) = self.moves.after(&dir) else { return Ok(false) };
        Ok(dir.is_root() || self.object(&dir)?.is_some_and(|object| object.is_dir()))
    }

    /// The object at a path; `None` also if a parent is no directory.
    pub(super) fn object(&self, path: &BasePath) -> Result<Option<TargetObject>> {
        match self.target.dir.object(path) {
            Err(error) if error.is_of_object() => Ok(None),
            found => Ok(found?.map(|object| self.closed(path, object))),
        }
    }

    /// A directory that is open now, with the attributes that it has while closed.
    fn closed(&self, path: &BasePath, object: TargetObject) -> TargetObject {
        match self.opened.get(path) {
            Some(attrs) => TargetObject { attrs: (*attrs).clone(), ..object },
            None => object,
        }
    }

    /// Calls `each` for entries of a removed directory that stay: those that came or changed since
    /// the apply, with that as the reason, and those whose own change is left out, without one.
    fn look_inside(
        &self,
        placed: &Placed,
        taken: &HashMap<&BasePath, &TargetObject>,
        each: &mut dyn FnMut(BasePath, Option<&'static str>),
    ) -> Result<()> {
        let mut failed = None;
        self.target.dir.walk(&placed.path, &mut |path, object| {
            if *path == placed.path {
                return true;
            }
            if taken.contains_key(path) || self.in_the_way.contains_key(path) {
                return false;
            }
            let Some(inside) = self.inside.get(path) else {
                each(path.clone(), (!self.placed.contains(path)).then_some(CAME));
                return false;
            };
            let left = LeftObject::from(*inside);
            let object = self.closed(path, object.clone());
            let is_same = left.is_now(&self.target.dir, path, &object, &self.going);
            let is_same = is_same.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                false
            });
            if !is_same {
                each(path.clone(), Some(CHANGED));
            }
            is_same
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn add_placed(&mut self, plan: &mut UndoPlan) {
        let record = self.record;
        for (placed, now) in record.placed.iter().zip(std::mem::take(&mut self.now)) {
            let change = placed.change;
            if self.left_out.contains(&change) {
                continue;
            }
            let mut over = now.as_ref().map(|now| now.seen.clone());
            if let Some(now) = &now
                && (placed.from.is_some() || placed.over.is_none())
            {
                let (slot, seen) = (self.slot(), now.seen.clone());
                let from = placed.path.clone();
                plan.steps.takes.push(Take { slot, from, stays: false, seen, change });
                if let Some(to) = &placed.from {
                    let (dir, to) = (StagingDir::Taken, to.clone());
                    let (over, made) = (None, None);
                    plan.steps.puts.push(PutStep { slot, dir, to, over, made, change });
                }
                over = None;
            }
            if let Some(kept) = placed.over
                && let Some(path) = self.moves.entry_before(&placed.path)
            {
                plan.replaced.extend(over.as_ref().map(|_| placed.path.clone()));
                self.restore(plan, kept, path, over, change);
            }
        }
    }

    fn add_removed(&mut self, plan: &mut UndoPlan) {
        let record = self.record;
        for removed in record.removed.iter() {
            if !self.left_out.contains(&removed.change) {
                self.restore(plan, removed.slot, removed.path.clone(), None, removed.change);
            }
        }
    }

    fn restore(
        &mut self,
        plan: &mut UndoPlan,
        kept: StagingSlot,
        path: BasePath,
        over: Option<SeenObject>,
        change: usize,
    ) {
        let (slot, name) = (self.slot(), kept_name(kept, &path));
        plan.steps.puts.push(PutStep {
            slot,
            dir: StagingDir::New,
            to: path.clone(),
            over,
            made: None,
            change,
        });
        plan.restores.push(Restore { slot, kept, name, path });
    }

    /// Drops the expected ctimes of files that get another hard link, which changes the ctime.
    fn forget_ctimes(&self, plan: &mut UndoPlan) {
        let shared: HashSet<u64> = self.record.shared.iter().map(|s| s.seen.ino).collect();
        let takes = plan.steps.takes.iter_mut().map(|take| &mut take.seen);
        let over = plan.steps.puts.iter_mut().filter_map(|put| put.over.as_mut());
        for seen in takes.chain(over).filter(|seen| shared.contains(&seen.ino)) {
            seen.ctime = None;
        }
    }

    /// Fills `changes` and `times`, which are shown.
    fn list(&self, plan: &mut UndoPlan) {
        let steps = &plan.steps;
        let before: HashMap<&BasePath, &Before> =
            self.record.before.iter().map(|before| (&before.path, before)).collect();
        let from: HashMap<StagingSlot, &Take> =
            steps.takes.iter().map(|take| (take.slot, take)).collect();
        let restored: HashSet<&BasePath> =
            plan.restores.iter().map(|restore| &restore.path).collect();
        let mut lines: BTreeMap<MergedPath, UndoChange> = BTreeMap::new();
        let mut line = |path: &BasePath, kind, is_dir, change| {
            let (path, change) = (MergedPath::of_base(path), Some(change));
            let held = DirContents::default();
            lines.insert(path.clone(), UndoChange { path, kind, is_dir, held, change });
        };
        let put: HashSet<_> = steps.puts.iter().map(|put| (put.dir, put.slot)).collect();
        let gone = steps.takes.iter().filter(|take| !put.contains(&(StagingDir::Taken, take.slot)));
        for take in gone.filter(|take| !restored.contains(&take.from)) {
            line(&take.from, UndoKind::Removed, take.seen.is_dir(), take.change);
        }
        let taken: HashSet<&BasePath> = steps.takes.iter().map(|take| &take.from).collect();
        for put in &steps.puts {
            let take = from.get(&put.slot).filter(|_| put.dir == StagingDir::Taken);
            let kind = match take {
                Some(take) => UndoKind::Moved(MergedPath::of_base(&take.from)),
                None if put.over.is_some() || taken.contains(&put.to) => UndoKind::Changed,
                None => UndoKind::Restored,
            };
            let was_dir = before.get(&put.to).map(|b| b.attrs.kind) == Some(FileKind::Directory);
            let is_dir = was_dir || take.is_some_and(|take| take.seen.is_dir());
            line(&put.to, kind, is_dir, put.change);
        }
        let mut times = 0;
        for set in &steps.sets {
            let path = MergedPath::of_base(&set.path);
            if lines.contains_key(&path) {
                continue;
            }
            let left = before.get(&set.path).and_then(|before| before.left.as_ref());
            if self.changes_attributes(&set.path, &set.attrs) {
                let is_dir = set.attrs.kind == FileKind::Directory;
                let change = UndoChange::of_attributes(path.clone(), is_dir, set.change);
                lines.insert(path, change);
            } else if left.is_some_and(|left| left.mtime != before[&set.path].attrs.mtime) {
                times += 1;
            }
        }
        let root = BasePath::root();
        if plan.top.as_ref().is_some_and(|top| self.changes_attributes(&root, top)) {
            let path = MergedPath::root();
            let change = self.record.changes.iter().position(|changed| *changed == path);
            lines.insert(path.clone(), UndoChange::of_attributes(path, true, change));
        }
        plan.times = times;
        plan.changes = lines.into_values().collect();
    }

    fn slot(&mut self) -> StagingSlot {
        self.slots += 1;
        self.slots
    }
}
