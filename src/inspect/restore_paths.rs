//! What a restore of some paths would change, and which other paths must go along.
//!
//! An object that differs is restored whole, with all its names of both moments. An object that
//! comes back needs the directories above it as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::between::{Moments, is_same};
use super::diff::{DiffOptions, Difference, DifferenceKind, at, is_dropping};
use super::error::{InspectError, Result};
use super::logged_changes::last_change;
use super::opened::{OpenSession, find_if_there};
use super::restore::RestorePlan;
use super::similar_names::similar_paths;
use crate::delta::{ChangedRows, Checkpoint, MergedPath, RestorePaths};
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileId, FileKind};

/// The paths of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreScope {
    /// The paths that the user named.
    pub named: BTreeSet<MergedPath>,
    /// These, and those that go along with them.
    pub closed: RestorePaths,
}

impl RestoreScope {
    /// Whether a difference is at no path that the user named, and goes along.
    pub fn goes_along(&self, difference: &Difference) -> bool {
        !both_paths(difference).any(|path| path.is_within_any(&self.named))
    }

    /// The paths that go along.
    pub fn along(&self) -> impl Iterator<Item = &MergedPath> {
        let all = self.closed.dirs.union(&self.closed.paths);
        all.filter(|path| !path.is_within_any(&self.named))
    }
}

/// Compares the tree as it is with that of a checkpoint, at some paths and at those that must go
/// along.
///
/// # Errors
/// A path was there at neither moment. The session or the base cannot be read.
pub fn plan_restore_paths(
    now: &OpenSession,
    base: Option<&Path>,
    to: &Checkpoint,
    paths: &[MergedPath],
) -> Result<RestorePlan> {
    plan_paths(now, base, to, &|trees| {
        for path in paths {
            check_was_there(path, trees)?;
        }
        Ok(paths.iter().cloned().collect())
    })
}

/// As [`plan_restore_paths`]; `choose` names the paths, of the tree now and that of the checkpoint.
pub(super) fn plan_paths(
    now: &OpenSession,
    base: Option<&Path>,
    to: &Checkpoint,
    choose: &dyn Fn([&TreeView<'_>; 2]) -> Result<BTreeSet<MergedPath>>,
) -> Result<RestorePlan> {
    // Before the comparison: a later change is noticed then.
    let seen = last_change(now.session())?;
    let past = OpenSession::open_at(now.session().path(), base, to)?;
    let moments = Moments { old: now, new: &past, from: to, until: None };
    let options = DiffOptions { times: true, client_temp_files: true, ..DiffOptions::default() };
    moments.with_differences(&options, &|_, _| true, |(current, past), found| {
        let named = choose([current, past])?;
        let mut closure = PathClosure::new((current, past), &found.all)?;
        let rows = now.session().changed_rows(to, None).map_err(|source| {
            let session = now.session().path().to_owned();
            InspectError::Store { session, source }
        })?;
        closure.add_renumbered(&rows)?;
        let closed = closure.close(named_that_differ(&named, &found.all))?;
        let scope = RestoreScope { named, closed };
        // Files that clients create for themselves may tie paths together, as further names of a
        // file or ends of a move. So they are compared, but a plan does not list them, as that of
        // the whole tree does not.
        let is_listed = |difference: &Difference| {
            scope.closed.dirs.contains(&difference.path)
                || !is_dropping(&difference.path)
                    && both_paths(difference).any(|path| path.is_within_any(&scope.closed.paths))
        };
        let differences = found.all.iter().filter(|one| is_listed(one)).cloned().collect();
        let paths = &scope.closed.paths;
        let mut denied = found.denied;
        denied.retain(|path| path.is_within_any(paths) || path.first_below(paths).is_some());
        Ok(RestorePlan { differences, denied, seen, scope: Some(scope), call: None })
    })
}

/// The paths of a difference: that at the checkpoint, and that now.
fn both_paths(difference: &Difference) -> impl Iterator<Item = MergedPath> + use<> {
    let now = difference.old.as_ref().map(|old| MergedPath::of_base(&old.path));
    [Some(difference.path.clone()), now].into_iter().flatten()
}

/// The named paths at or below which something differs, or that are below a directory that moved.
fn named_that_differ<'p>(
    named: &'p BTreeSet<MergedPath>,
    differences: &[Difference],
) -> impl Iterator<Item = &'p MergedPath> + use<'p> {
    let differing: BTreeSet<_> = differences.iter().flat_map(both_paths).collect();
    let moved = differences.iter().filter(|one| one.kind == DifferenceKind::Renamed);
    let moved: BTreeSet<_> = moved.flat_map(both_paths).collect();
    named.iter().filter(move |path| {
        path.is_within_any(&moved)
            || differing.contains(*path)
            || path.first_below(&differing).is_some()
    })
}

/// The names of the objects of a difference that have several.
fn all_names(
    (current, past): (&TreeView<'_>, &TreeView<'_>),
    difference: &Difference,
) -> Result<Vec<(FileId, Vec<MergedPath>)>> {
    let now = difference.old.as_ref().filter(|old| old.attr.nlink > 1);
    let now = now.map(|old| find_if_there(current, &MergedPath::of_base(&old.path)));
    let now = now.transpose()?.flatten();
    let then = difference.change.after.clone().filter(|after| after.attr().nlink > 1);
    let mut names = Vec::new();
    for (view, object) in [(current, now), (past, then)] {
        let file = object.filter(|object| object.attr().kind != FileKind::Directory);
        if let Some((file, row)) = file.as_ref().and_then(|file| Some((file, file.row()?))) {
            let paths = view.paths_of(row.ino).map_err(|source| at(file.path(), source))?;
            names.push((file.attr().fileid, paths));
        }
    }
    Ok(names)
}

/// Finds the paths that must go along with others.
struct PathClosure<'a> {
    /// The tree now.
    current: &'a TreeView<'a>,
    /// The tree at the checkpoint.
    past: &'a TreeView<'a>,
    /// For each object that differs, its paths of both moments.
    groups: Vec<BTreeSet<MergedPath>>,
    /// The present paths of moved objects, by those at the checkpoint.
    current_by_past: BTreeMap<MergedPath, MergedPath>,
    /// The paths of moved objects at the checkpoint, by the present ones.
    past_by_current: BTreeMap<MergedPath, MergedPath>,
    closed: RestorePaths,
    /// Chosen paths whose directories above are still to be looked at.
    unvisited: Vec<MergedPath>,
}

impl<'a> PathClosure<'a> {
    fn new(
        (current, past): (&'a TreeView<'a>, &'a TreeView<'a>),
        differences: &[Difference],
    ) -> Result<Self> {
        let mut by_number: BTreeMap<u64, BTreeSet<MergedPath>> = BTreeMap::new();
        let (mut current_by_past, mut past_by_current) = (BTreeMap::new(), BTreeMap::new());
        for difference in differences {
            let before = difference.old.as_ref().map(|old| old.attr.fileid);
            let after = difference.change.after.as_ref().map(|after| after.attr().fileid);
            for number in [before, after].into_iter().flatten() {
                by_number.entry(number.0).or_default().extend(both_paths(difference));
            }
            for (number, names) in all_names((current, past), difference)? {
                by_number.entry(number.0).or_default().extend(names);
            }
            if let (DifferenceKind::Renamed, Some(old)) = (difference.kind, &difference.old) {
                let (to, from) = (difference.path.clone(), MergedPath::of_base(&old.path));
                current_by_past.insert(to.clone(), from.clone());
                past_by_current.insert(from, to);
            }
        }
        let groups = by_number.into_values().filter(|paths| paths.len() > 1).collect();
        let (closed, unvisited) = (RestorePaths::default(), Vec::new());
        Ok(Self { current, past, groups, current_by_past, past_by_current, closed, unvisited })
    }

    /// Adds the files that had another number at the checkpoint, as that of a base file is lost
    /// with a discard of one of its names. They have one row, and no difference shows that they are
    /// one file.
    fn add_renumbered(&mut self, rows: &ChangedRows) -> Result<()> {
        for ino in &rows.objects {
            let mut names = BTreeSet::new();
            let mut numbers = BTreeSet::new();
            for view in [self.past, self.current] {
                let failed = |source| at(&MergedPath::root(), source);
                let paths = view.paths_of(*ino).map_err(failed)?;
                if let Some(name) = paths.first() {
                    numbers.extend(find_if_there(view, name)?.map(|found| found.attr().fileid.0));
                }
                names.extend(paths);
            }
            if numbers.len() > 1 && names.len() > 1 {
                self.groups.push(names);
            }
        }
        Ok(())
    }

    fn close<'p>(mut self, paths: impl Iterator<Item = &'p MergedPath>) -> Result<RestorePaths> {
        paths.for_each(|path| self.add(path));
        loop {
            while let Some(path) = self.unvisited.pop() {
                self.add_dirs_above(&path)?;
                self.add_moved_dir(&path)?;
            }
            if !self.add_names() {
                break;
            }
        }
        let RestorePaths { paths, dirs, .. } = self.closed;
        let is_outermost = |path: &MergedPath| !path.above().any(|above| paths.contains(&above));
        let dirs = dirs.into_iter().filter(|dir| !dir.is_within_any(&paths)).collect();
        let paths: BTreeSet<_> = paths.iter().filter(|path| is_outermost(path)).cloned().collect();
        let mut absent = BTreeSet::new();
        for path in &paths {
            if find_if_there(self.past, path)?.is_none() {
                absent.insert(path.clone());
            }
        }
        Ok(RestorePaths { paths, dirs, absent, ..RestorePaths::default() })
    }

    fn add(&mut self, path: &MergedPath) {
        if !path.is_within_any(&self.closed.paths) {
            self.closed.paths.insert(path.clone());
            self.unvisited.push(path.clone());
        }
    }

    /// Adds the other names of the objects that differ; returns whether there were any.
    fn add_names(&mut self) -> bool {
        let chosen = &self.closed.paths;
        let touched =
            self.groups.iter().filter(|group| group.iter().any(|path| path.is_within_any(chosen)));
        let missing: Vec<_> =
            touched.flatten().filter(|path| !path.is_within_any(chosen)).cloned().collect();
        missing.iter().for_each(|path| self.add(path));
        !missing.is_empty()
    }

    /// Adds the directories above a path that its object at the checkpoint needs. A directory that
    /// is gone comes back alone. One that moved goes along whole, and so does an object that
    /// replaced one.
    fn add_dirs_above(&mut self, path: &MergedPath) -> Result<()> {
        if find_if_there(self.past, path)?.is_none() {
            return Ok(());
        }
        let mut above: Vec<_> = path.above().collect();
        above.reverse();
        for dir in above {
            let Some(past) = find_if_there(self.past, &dir)? else { break };
            match find_if_there(self.current, &dir)? {
                Some(current) if self.is_as_it_was(&past, &current)? => {}
                None if !self.current_by_past.contains_key(&dir) => {
                    self.closed.dirs.insert(dir);
                }
                _ => {
                    self.add(&dir);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the moved directory with which the object at a path came there.
    fn add_moved_dir(&mut self, path: &MergedPath) -> Result<()> {
        let Some(current) = find_if_there(self.current, path)? else { return Ok(()) };
        let mut above = path.above();
        let moved = above.find_map(|dir| Some((self.past_by_current.get(&dir)?.clone(), dir)));
        let Some((past_dir, current_dir)) = moved else { return Ok(()) };
        let rest = &path.as_bytes()[current_dir.as_bytes().len()..];
        let Some(past_path) = MergedPath::from_bytes(&[past_dir.as_bytes(), rest].concat()) else {
            return Ok(());
        };
        if find_if_there(self.past, &past_path)?.is_some_and(|past| is_same(&past, &current)) {
            self.add(&current_dir);
        }
        Ok(())
    }

    /// Whether a directory is the same one, and shows the same directory of the base.
    fn is_as_it_was(&self, past: &TreeObject, current: &TreeObject) -> Result<bool> {
        let shown = |view: &TreeView<'_>, dir: &TreeObject| {
            view.shown_base(dir).map_err(|source| at(dir.path(), source))
        };
        Ok(is_same(past, current) && shown(self.past, past)? == shown(self.current, current)?)
    }
}

/// Refuses a path that is in neither tree.
fn check_was_there(path: &MergedPath, trees: [&TreeView<'_>; 2]) -> Result<()> {
    for view in trees {
        if find_if_there(view, path)?.is_some() {
            return Ok(());
        }
    }
    let similar = similar_paths(path, trees)?;
    Err(InspectError::NeverThere { path: path.clone(), similar })
}
