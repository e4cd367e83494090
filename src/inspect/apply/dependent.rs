//! Leaves out changes that depend on other left-out changes.
//!
//! A change in a directory that is not made, moved or retyped has no place. Neither has one at the
//! path of a base object whose move is left out. A directory stays if an object that was to move
//! out of it stays. If the user did not choose a move, and a change needs its old path, the plan is
//! refused, with the path to name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Skipped;
use super::plan::{ApplyPlan, ChangeSize, target_path};
use super::planner::{LeftOutMove, Planner};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::overlay::Change;
use crate::vfs::FileKind;
use crate::writeback::{StagingDir, StagingSlot};

/// An index of a plan's steps, to find dependencies.
struct Dependencies {
    /// All changes, by merged path.
    paths: BTreeMap<MergedPath, usize>,
    /// Changes with a put.
    placing: HashSet<usize>,
    /// Changes with a put that replaces nothing, by the put's path.
    puts: HashMap<BasePath, usize>,
    /// Takes of whole objects, not of hard links, by their path.
    takes: BTreeMap<BasePath, TakenAway>,
    /// The paths of the takes of each change.
    sources: HashMap<usize, Vec<BasePath>>,
}

/// The take of an object.
#[derive(Clone, Copy)]
struct TakenAway {
    change: usize,
    /// The object is put elsewhere.
    is_moved: bool,
}

impl Dependencies {
    fn of(plan: &ApplyPlan) -> Self {
        let changes = plan.changes.iter().enumerate();
        let paths = changes.map(|(number, change)| (change.path.clone(), number)).collect();
        let puts = plan.steps.puts.iter();
        let placing = puts.clone().map(|put| put.change).collect();
        let moved: HashSet<_> =
            puts.clone().filter(|put| put.dir == StagingDir::Taken).map(|put| put.slot).collect();
        let puts = puts.filter(|put| put.over.is_none());
        let puts = puts.map(|put| (put.to.clone(), put.change)).collect();
        let (mut takes, mut sources) = (BTreeMap::new(), HashMap::<_, Vec<_>>::new());
        for take in plan.steps.takes.iter().filter(|take| !take.stays) {
            let (change, is_moved) = (take.change, moved.contains(&take.slot));
            takes.insert(take.from.clone(), TakenAway { change, is_moved });
            sources.entry(change).or_default().push(take.from.clone());
        }
        Self { paths, placing, puts, takes, sources }
    }

    /// The changes below a path.
    fn below<'a>(&'a self, top: &'a MergedPath) -> impl Iterator<Item = usize> + 'a {
        let below = self.paths.range(top.clone()..).skip_while(move |(path, _)| *path == top);
        // Names such as `a-b` sort between the directory `a` and its entries.
        let below = below.take_while(|(path, _)| path.as_bytes().starts_with(top.as_bytes()));
        below.filter(move |(path, _)| path.is_within(top)).map(|(_, number)| *number)
    }
}

impl Planner<'_> {
    /// Leaves out a change in a directory whose move is left out. Returns whether it is left out.
    pub(super) fn leave_out_if_its_directory_stays(&mut self, change: &Change) -> Result<bool> {
        let Some(dir) = self.moved_above(&change.path) else { return Ok(false) };
        if !self.plan.left_out.iter().any(|left| left.path == dir) {
            return Ok(false);
        }
        if self.difference(change.clone())?.is_some() {
            let why = format!("in {}, whose move is left out", dir.display());
            self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        }
        Ok(true)
    }

    /// Leaves out the changes that depend on left-out changes, transitively.
    pub(super) fn leave_out_dependents(&mut self) -> Result<()> {
        if self.plan.left_out.is_empty() && self.staying.is_empty() {
            return Ok(());
        }
        let needs = Dependencies::of(&self.plan);
        let mut kept: BTreeSet<_> =
            self.plan.kept_in_base().map(|kept| kept.path.clone()).collect();
        let mut missing = BTreeSet::new();
        let by_rule: BTreeSet<_> = self.plan.left_out.iter().map(|left| &left.path).collect();
        let staying = self.staying.iter();
        let staying: Vec<_> = staying
            .map(|(from, left)| (from.clone(), left.clone(), by_rule.contains(&left.to)))
            .collect();
        for (from, left, is_by_rule) in staying {
            if left.is_removed {
                if is_by_rule {
                    self.leave_out_in_place_of(&needs, &from, &left.to);
                }
            } else if is_by_rule {
                self.leave_out_around(&needs, &from, Some(&left.to));
            } else if let Some(removed) = self.taken_above(&needs, &from).filter(|t| !t.is_moved) {
                let (from, to) = (MergedPath::of_base(&from), left.to.display());
                let why = format!("holds {}, whose move to {to} is not chosen", from.display());
                self.refuse_with(removed.change, why);
            }
        }
        let mut next = 0;
        while let Some(number) = self.plan.refused.get(next).map(|(number, _)| *number) {
            next += 1;
            let path = self.plan.changes[number].path.clone();
            if self.lacks_directory(&needs, number)? {
                self.leave_out_inside(&needs, &path, &mut kept);
                missing.insert(path.clone());
            }
            for from in needs.sources.get(&number).into_iter().flatten() {
                let is_moved = needs.takes.get(from).is_some_and(|take| take.is_moved);
                if is_moved {
                    let left = LeftOutMove { to: path.clone(), is_removed: false };
                    self.staying.insert(from.clone(), left);
                }
                self.leave_out_around(&needs, from, is_moved.then_some(&path));
            }
            if let Some(from) = self.removed_sources.get(&number).cloned() {
                self.leave_out_in_place_of(&needs, &from, &path);
            }
        }
        self.plan.left_to_base = kept;
        self.drop_refused(&missing);
        Ok(())
    }

    /// Leaves out the changes in a directory that is not made, moved or retyped. If the directory
    /// is in `kept`, which is left to the base, they are too.
    fn leave_out_inside(
        &mut self,
        needs: &Dependencies,
        top: &MergedPath,
        kept: &mut BTreeSet<MergedPath>,
    ) {
        let is_kept = kept.contains(top);
        for inside in needs.below(top) {
            if is_kept {
                kept.insert(self.plan.changes[inside].path.clone());
            }
            if !self.refused.contains(&inside) {
                self.refuse_with(inside, format!("in {}, which is left out", top.display()));
            }
        }
    }

    /// Whether the target has no directory at the path of a change unless the change is made.
    fn lacks_directory(&self, needs: &Dependencies, number: usize) -> Result<bool> {
        let change = &self.plan.changes[number];
        if change.object.is_none() || needs.placing.contains(&number) {
            return Ok(change.object.is_some());
        }
        let home = target_path(change.from.as_ref().unwrap_or(&change.path));
        let there = self.target.stat(&home)?;
        Ok(there.is_none_or(|there| there.kind != FileKind::Directory))
    }

    /// Leaves out the changes that cannot be made while a base object stays at `from`. The object
    /// was to move to `to`, or to be removed if that is `None`.
    fn leave_out_around(&mut self, needs: &Dependencies, from: &BasePath, to: Option<&MergedPath>) {
        if let Some(taken) = self.taken_above(needs, from) {
            // An object that was to be removed moves with its directory instead.
            if to.is_some() || !taken.is_moved {
                let what = match to {
                    Some(to) => format!("move to {}", to.display()),
                    None => "removal".to_owned(),
                };
                let holds = MergedPath::of_base(from);
                let why = format!("holds {}, whose {what} is left out", holds.display());
                self.refuse_with(taken.change, why);
            }
            return;
        }
        if let Some(&number) = needs.puts.get(from) {
            let why = match to {
                Some(to) => {
                    format!(
                        "its path is not free: the move from there to {} is left out",
                        to.display()
                    )
                }
                None => "its path is not free: the removal there is left out".to_owned(),
            };
            self.refuse_with(number, why);
        }
    }

    /// Leaves out a put at `from`. There the base had an object that moved to `to`, and lacks it
    /// now: the session would show the new object at both paths.
    fn leave_out_in_place_of(&mut self, needs: &Dependencies, from: &BasePath, to: &MergedPath) {
        if let Some(&number) = needs.puts.get(from) {
            let why = format!("the move from there to {} is left out", to.display());
            self.refuse_with(number, why);
        }
    }

    /// The take of the lowest directory above a path that is taken.
    fn taken_above(&self, needs: &Dependencies, from: &BasePath) -> Option<TakenAway> {
        let up = |path: &BasePath| path.split().map(|(above, _)| above);
        let above = std::iter::successors(up(from), up);
        let mut taken = above.filter_map(|dir| needs.takes.get(&dir));
        taken.find(|taken| !self.refused.contains(&taken.change)).copied()
    }

    fn refuse_with(&mut self, number: usize, why: String) {
        let path = self.plan.changes[number].path.clone();
        self.refuse(number, Skipped { path, why });
    }

    /// Removes the refused changes from the steps, and from the counts and lists of the plan. The
    /// directories at the `missing` paths are left out.
    fn drop_refused(&mut self, missing: &BTreeSet<MergedPath>) {
        self.make_at_first_name_left();
        let is_done = |change: usize| !self.refused.contains(&change);
        let plan = &mut self.plan;
        plan.makes.retain(|make| is_done(make.change));
        plan.steps.takes.retain(|take| is_done(take.change));
        plan.steps.puts.retain(|put| is_done(put.change));
        // At the path of a left-out directory, the base may have another one.
        let is_apart = |path: &BasePath| {
            let path = MergedPath::of_base(path);
            missing.contains(&path) || path.above().any(|above| missing.contains(&above))
        };
        plan.steps.sets.retain(|set| set.change.map_or(!is_apart(&set.path), is_done));
        self.counts.retain(|change, _| is_done(*change));
        let paths: BTreeSet<_> = plan.refused.iter().map(|(_, skipped)| &skipped.path).collect();
        plan.merged.retain(|merged| !paths.contains(&merged.path));
        plan.special.retain(|special| !paths.contains(&special.path));
        plan.losses.retain(|loss| !paths.contains(&loss.path));
    }

    /// Makes a file with several names at its first name that is not left out.
    fn make_at_first_name_left(&mut self) {
        let mut instead: HashMap<StagingSlot, Option<StagingSlot>> = HashMap::new();
        let mut sizes: HashMap<StagingSlot, ChangeSize> = HashMap::new();
        for make in &mut self.plan.makes {
            let is_left_out = self.refused.contains(&make.change);
            match make.link {
                None if is_left_out => {
                    instead.insert(make.slot, None);
                    let size = self.counts.get(&make.change).copied().unwrap_or_default();
                    sizes.insert(make.slot, size);
                }
                Some(of) if !is_left_out && let Some(first) = instead.get_mut(&of) => {
                    make.link = *first;
                    if first.is_none() {
                        *first = Some(make.slot);
                        let size = sizes.get(&of).copied().unwrap_or_default();
                        let own = self.counts.entry(make.change).or_default();
                        own.links -= 1;
                        own.files += size.files;
                        own.bytes += size.bytes;
                        own.data_bytes += size.data_bytes;
                    }
                }
                _ => {}
            }
        }
    }
}
