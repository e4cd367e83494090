//! Changes that cannot be applied because of others that the plan leaves out by rules of its own.
//!
//! What comes into a directory that is not made, moved or retyped has no place, nor has what comes
//! to where the base has something whose move is left out. A directory from which something was to
//! move away stays with it. Where the user did not choose a move, the plan is refused if something
//! would take its old place, with the path to name.

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

/// What the steps of a plan need of each other.
struct Dependencies {
    /// The changes by path.
    paths: BTreeMap<MergedPath, usize>,
    /// The changes that put something.
    placing: HashSet<usize>,
    /// The changes that put something to where nothing is, by that path.
    puts: HashMap<BasePath, usize>,
    /// The changes that take something away, by where it is.
    takes: BTreeMap<BasePath, TakenAway>,
    /// The paths that changes take something from.
    sources: HashMap<usize, Vec<BasePath>>,
}

/// What takes something away from where the base has it.
#[derive(Clone, Copy)]
struct TakenAway {
    change: usize,
    /// It is put elsewhere.
    is_moved: bool,
}

impl Dependencies {
    fn of(plan: &ApplyPlan) -> Self {
        let changes = plan.changes.iter().enumerate();
        let paths = changes.map(|(number, change)| (change.path.clone(), number)).collect();
        let puts = plan.steps.puts.iter();
        let placing = puts.clone().map(|put| put.change).collect();
        let moved: HashSet<_> =
            puts.clone().filter(|put| put.shelf == StagingDir::Taken).map(|put| put.slot).collect();
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
        // Other names sort between a directory and what is in it.
        let below = below.take_while(|(path, _)| path.as_bytes().starts_with(top.as_bytes()));
        below.filter(move |(path, _)| path.is_within(top)).map(|(_, number)| *number)
    }
}

impl Planner<'_> {
    /// Leaves out, by name, a change in a directory whose move is left out; whether it is left out.
    pub(super) fn leave_out_if_its_directory_stays(&mut self, change: &Change) -> Result<bool> {
        let Some(dir) = self.moved_above(&change.path) else { return Ok(false) };
        if !self.plan.left_out.iter().any(|left| left.path == dir) {
            return Ok(false);
        }
        if self.difference(change.clone())?.is_some() {
            let why = format!("in {}, which was moved, and that is left out", dir.display());
            self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        }
        Ok(true)
    }

    /// Leaves out what depends on what is left out; more may depend on each of these.
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
                let why = format!(
                    "holds {}, which was moved to {to}, and that is not chosen",
                    from.display()
                );
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

    /// Leaves out what is in a directory that is not made, moved or retyped. What is in one of the
    /// `kept`, which are left to the base, is left to it too.
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

    /// Whether the directory of a change is not there without that, and not only has other
    /// attributes.
    fn lacks_directory(&self, needs: &Dependencies, number: usize) -> Result<bool> {
        let change = &self.plan.changes[number];
        if change.object.is_none() || needs.placing.contains(&number) {
            return Ok(change.object.is_some());
        }
        let home = target_path(change.from.as_ref().unwrap_or(&change.path));
        let there = self.place.stat(&home)?;
        Ok(there.is_none_or(|there| there.kind != FileKind::Directory))
    }

    /// Leaves out what cannot be while a base object stays where it is: it was to be moved to `to`,
    /// or else to be removed.
    fn leave_out_around(&mut self, needs: &Dependencies, from: &BasePath, to: Option<&MergedPath>) {
        if let Some(taken) = self.taken_above(needs, from) {
            // What was to be removed moves with its directory.
            if to.is_some() || !taken.is_moved {
                let what = match to {
                    Some(to) => format!("was moved to {}", to.display()),
                    None => "was removed".to_owned(),
                };
                let holds = MergedPath::of_base(from);
                let why = format!("holds {}, which {what}, and that is left out", holds.display());
                self.refuse_with(taken.change, why);
            }
            return;
        }
        if let Some(&number) = needs.puts.get(from) {
            let why = match to {
                Some(to) => {
                    format!("what is there was moved to {}, and that is left out", to.display())
                }
                None => "what is there was removed, and that is left out".to_owned(),
            };
            self.refuse_with(number, why);
        }
    }

    /// Leaves out what would come to where the base had an object that was moved to `to`, and does
    /// not have it any more: the session would show what came at both paths.
    fn leave_out_in_place_of(&mut self, needs: &Dependencies, from: &BasePath, to: &MergedPath) {
        if let Some(&number) = needs.puts.get(from) {
            let why = format!("what was there was moved to {}, and that is left out", to.display());
            self.refuse_with(number, why);
        }
    }

    /// What takes away the directory that something is in: the lowest one that is taken.
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

    /// Takes what is left out from the steps, and from all that the plan counts and names. The
    /// directories at the `missing` paths are left out.
    fn drop_refused(&mut self, missing: &BTreeSet<MergedPath>) {
        self.make_at_first_name_left();
        let is_done = |change: usize| !self.refused.contains(&change);
        let plan = &mut self.plan;
        plan.makes.retain(|make| is_done(make.change));
        plan.steps.takes.retain(|take| is_done(take.change));
        plan.steps.puts.retain(|put| is_done(put.change));
        // Where a directory is left out, the base may have another one.
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

    /// Makes a file of several names at the first one that is not left out.
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
