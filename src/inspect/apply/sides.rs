//! Whose state counts where the base changed: the drift that the options overwrite, leave out, or
//! leave to the base.

use std::collections::{BTreeSet, HashSet};

use super::Skipped;
use super::advice::ApplyAdvice;
use super::drift::{DriftReason, Drifted, GoneDir};
use super::plan::{KeptExtent, KeptInBase};
use super::planner::Planner;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::diff;
use crate::inspect::error::Result;

impl Planner<'_> {
    /// Adds the drift to the plan, sorted, and leaves out the changes that the options exclude.
    pub(super) fn resolve_drift(&mut self) -> Result<()> {
        let names = |named: &[MergedPath], path: &MergedPath| {
            named.iter().any(|named| path.is_within(named))
        };
        let mut drifts = self.drifted_changes.clone();
        let paths: Vec<_> = self.plan.changes.iter().map(|change| change.path.clone()).collect();
        let has = |named: &[MergedPath], (change, drifted): &(usize, Drifted)| {
            paths.get(*change).is_some_and(|path| names(named, path)) || names(named, &drifted.path)
        };
        for (change, drifted) in &mut drifts {
            if drifted.reason == DriftReason::Copy {
                drifted.in_copy = self.difference_in_copy(*change, &drifted.path)?;
            }
            if drifted.reason == DriftReason::ChangedSinceDeleted {
                drifted.inside = self.gone_dir_of(*change, drifted);
            }
        }
        let (overruled, drifts): (Vec<_>, Vec<_>) =
            drifts.into_iter().partition(|drift| has(&self.sides.session, drift));
        self.plan.overruled = sorted(overruled.into_iter().map(|(_, drifted)| drifted));
        let mut inside = BTreeSet::new();
        let mut to_base = HashSet::new();
        for (change, drifted) in drifts.iter().filter(|drift| has(&self.sides.base, drift)) {
            // A change is left out whole, and given up whole if its own path is named.
            if paths.get(*change).is_some_and(|path| names(&self.sides.base, path))
                || self.is_of_change(*change, drifted)
            {
                to_base.insert(*change);
            } else {
                self.check_in_removed_dir(*change, drifted)?;
                inside.insert(drifted.path.clone());
            }
        }
        self.plan.drifted = sorted(drifts.iter().map(|(_, drifted)| drifted.clone()));
        for (number, drifted) in drifts {
            let Some(path) = paths.get(number) else { continue };
            let (keeps_base, mut why) = (to_base.contains(&number), drifted.why());
            let is_inside = !keeps_base && inside.contains(&drifted.path);
            if keeps_base {
                let kept = KeptInBase { path: path.clone(), extent: self.extent_of(number) };
                self.plan.kept_in_base.insert(drifted.path, kept);
            } else if is_inside {
                let at = drifted.path;
                why = format!(
                    "holds {}, which stays as the base has it; the session keeps the removal of \
                     the rest",
                    at.display()
                );
                let kept = KeptInBase { path: at.clone(), extent: KeptExtent::InRemovedDir };
                self.plan.kept_in_base.insert(at, kept);
            } else if !self.is_of_change(number, &drifted) {
                why = format!("holds {}: {why}", drifted.path.display());
            }
            if keeps_base || is_inside || self.skips_drifted {
                self.refuse(number, Skipped { path: path.clone(), why });
            } else if !self.is_forced {
                self.plan.undecided.insert(path.clone());
            }
        }
        self.check_given_up()
    }

    /// Refuses to give up objects that the user has not named: what moved out of a directory that
    /// is left to the base, or what is in the old place of a move that is.
    fn check_given_up(&self) -> Result<()> {
        let whole = self.plan.kept_in_base.values().filter(|k| k.extent == KeptExtent::Whole);
        let whole: Vec<_> = whole.map(|kept| kept.path.clone()).collect();
        if whole.is_empty() || self.target.is_copy() {
            return Ok(());
        }
        let extent = self.view.discard_extent(&whole);
        let extent = extent.map_err(|source| diff::at(&MergedPath::root(), source))?;
        for path in &extent.paths {
            let is_named = whole.iter().chain(&self.sides.base).any(|named| path.is_within(named));
            let is_there = || self.view.find(path).map_err(|source| diff::at(path, source));
            if !is_named && is_there()?.is_some() {
                let kept: Vec<_> = whole.iter().map(|path| path.display().to_string()).collect();
                let (path, kept) = (path.display(), kept.join(", "));
                let what = format!("{path}: cannot stay if the base's side of {kept} is taken");
                return Err(InspectError::Refused { what, advice: ApplyAdvice::NameOtherEnd });
            }
        }
        Ok(())
    }

    /// What the session gives up if the change itself is left to the base.
    pub(super) fn extent_of(&self, change: usize) -> KeptExtent {
        match self.attributes_of_dirs.contains(&change) {
            true => KeptExtent::Attributes,
            false => KeptExtent::Whole,
        }
    }

    /// Whether the object that drifted is the one that a change changes, and not one inside of it.
    fn is_of_change(&self, change: usize, drifted: &Drifted) -> bool {
        self.plan.changes.get(change).is_none_or(|change| {
            change.path == drifted.path || change.from.as_ref() == Some(&drifted.path)
        })
    }

    /// The directory that a change deletes or replaces, if the drifted object is in it.
    fn gone_dir_of(&self, change: usize, drifted: &Drifted) -> Option<GoneDir> {
        let change = self.plan.changes.get(change)?;
        let is_replaced = change.object.is_some();
        let old = change.from.as_ref().filter(|_| !is_replaced);
        let path = old.unwrap_or(&change.path).clone();
        let is_inside = drifted.path != path && drifted.path.is_within(&path);
        is_inside.then_some(GoneDir { path, is_replaced })
    }

    /// Refuses to leave one object to the base in a directory that the session replaced or moved,
    /// and one of git's own files: these come back with the whole directory alone.
    fn check_in_removed_dir(&self, change: usize, drifted: &Drifted) -> Result<()> {
        let Some(change) = self.plan.changes.get(change) else { return Ok(()) };
        let is_removal = change.object.is_none() && change.from.is_none();
        if is_removal && !self.is_gits_own(&drifted.path)? {
            return Ok(());
        }
        let (path, dir) = (drifted.path.display(), change.path.display());
        let what = format!("{path}: cannot come back without the rest of {dir}");
        Err(InspectError::Refused { what, advice: ApplyAdvice::NameWholeDir })
    }
}

/// Drifted objects, each once, sorted by path.
fn sorted(drifted: impl Iterator<Item = Drifted>) -> Vec<Drifted> {
    let mut sorted: Vec<_> = drifted.collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    sorted.dedup();
    sorted
}
