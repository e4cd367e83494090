//! What a restore of some paths would change, and which other paths must go along.
//!
//! An object that differs is restored whole, with all its names of both moments. What comes back
//! needs the directories above it as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::between::Moments;
use super::diff::{DiffOptions, Difference, DifferenceKind, at, is_dropping};
use super::error::{InspectError, Result};
use super::logged_changes::last_change;
use super::opened::{OpenSession, open_session};
use super::restore::RestorePlan;
use crate::delta::{Checkpoint, MergedPath, RestorePaths};
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileId, FileKind, FsError};

/// The most names of a directory that an error compares.
const MAX_NAMES: usize = 4096;

/// The most names that an error offers.
const MAX_OFFERED: usize = 3;

/// The most edits (insert, delete, replace or swap a letter) between similar names.
const MAX_EDITS: usize = 2;

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
        !ends(difference).any(|path| path.is_within_any(&self.named))
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
    // Before the comparison: a later change is noticed then.
    let seen = last_change(now.session())?;
    let mut session = open_session(now.session().path())?;
    session.show_at(to);
    let then = OpenSession::over(session, base)?;
    let moments = Moments { old: now, new: &then, from: to, until: None };
    let options = DiffOptions { times: true, client_temp_files: true, ..DiffOptions::default() };
    moments.with_differences(&options, &|_, _| true, |(now, then), found| {
        for path in paths {
            check_was_there(path, [now, then])?;
        }
        let named: BTreeSet<_> = paths.iter().cloned().collect();
        let closure = PathClosure::new((now, then), &found.all)?;
        let closed = closure.close(differing_of(&named, &found.all))?;
        let scope = RestoreScope { named, closed };
        let is_chosen = |difference: &Difference| {
            scope.closed.dirs.contains(&difference.path)
                || !is_dropping(&difference.path)
                    && ends(difference).any(|path| path.is_within_any(&scope.closed.paths))
        };
        let differences = found.all.iter().filter(|one| is_chosen(one)).cloned().collect();
        let paths = &scope.closed.paths;
        let mut denied = found.denied;
        denied.retain(|path| path.is_within_any(paths) || path.first_below(paths).is_some());
        Ok(RestorePlan { differences, denied, seen, scope: Some(scope) })
    })
}

/// The paths of a difference: that then, and that now.
fn ends(difference: &Difference) -> impl Iterator<Item = MergedPath> + use<> {
    let now = difference.old.as_ref().map(|old| MergedPath::of_base(&old.path));
    [Some(difference.path.clone()), now].into_iter().flatten()
}

/// The paths at or below which something differs, or that are below a directory that moved.
fn differing_of<'p>(
    paths: &'p BTreeSet<MergedPath>,
    differences: &[Difference],
) -> impl Iterator<Item = &'p MergedPath> + use<'p> {
    let differing: BTreeSet<_> = differences.iter().flat_map(ends).collect();
    let moved = differences.iter().filter(|one| one.kind == DifferenceKind::Renamed);
    let moved: BTreeSet<_> = moved.flat_map(ends).collect();
    paths.iter().filter(move |path| {
        path.is_within_any(&moved)
            || differing.contains(*path)
            || path.first_below(&differing).is_some()
    })
}

/// The names of the objects of a difference that have several.
fn all_names(
    (now, then): (&TreeView<'_>, &TreeView<'_>),
    difference: &Difference,
) -> Result<Vec<(FileId, Vec<MergedPath>)>> {
    let here = difference.old.as_ref().filter(|old| old.attr.nlink > 1);
    let here = here.map(|old| find(now, &MergedPath::of_base(&old.path))).transpose()?.flatten();
    let there = difference.change.after.clone().filter(|after| after.attr().nlink > 1);
    let mut names = Vec::new();
    for (view, object) in [(now, here), (then, there)] {
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
    now: &'a TreeView<'a>,
    then: &'a TreeView<'a>,
    /// For each object that differs, its paths of both moments.
    groups: Vec<BTreeSet<MergedPath>>,
    /// Moved objects: where they are now, by where they were.
    now_by_then: BTreeMap<MergedPath, MergedPath>,
    then_by_now: BTreeMap<MergedPath, MergedPath>,
    closed: RestorePaths,
    /// Paths whose directories above are still to be looked at.
    open: Vec<MergedPath>,
}

impl<'a> PathClosure<'a> {
    fn new(
        (now, then): (&'a TreeView<'a>, &'a TreeView<'a>),
        differences: &[Difference],
    ) -> Result<Self> {
        let mut by_number: BTreeMap<u64, BTreeSet<MergedPath>> = BTreeMap::new();
        let (mut now_by_then, mut then_by_now) = (BTreeMap::new(), BTreeMap::new());
        for difference in differences {
            let before = difference.old.as_ref().map(|old| old.attr.fileid);
            let after = difference.change.after.as_ref().map(|after| after.attr().fileid);
            for number in [before, after].into_iter().flatten() {
                by_number.entry(number.0).or_default().extend(ends(difference));
            }
            for (number, names) in all_names((now, then), difference)? {
                by_number.entry(number.0).or_default().extend(names);
            }
            if let (DifferenceKind::Renamed, Some(old)) = (difference.kind, &difference.old) {
                let (there, here) = (difference.path.clone(), MergedPath::of_base(&old.path));
                now_by_then.insert(there.clone(), here.clone());
                then_by_now.insert(here, there);
            }
        }
        let groups = by_number.into_values().filter(|paths| paths.len() > 1).collect();
        let (closed, open) = (RestorePaths::default(), Vec::new());
        Ok(Self { now, then, groups, now_by_then, then_by_now, closed, open })
    }

    fn close<'p>(mut self, paths: impl Iterator<Item = &'p MergedPath>) -> Result<RestorePaths> {
        paths.for_each(|path| self.add(path));
        loop {
            while let Some(path) = self.open.pop() {
                self.close_then(&path)?;
                self.close_now(&path)?;
            }
            if !self.add_names() {
                break;
            }
        }
        let RestorePaths { paths, dirs, homes } = self.closed;
        let is_outermost = |path: &MergedPath| !path.above().any(|above| paths.contains(&above));
        let dirs = dirs.into_iter().filter(|dir| !dir.is_within_any(&paths)).collect();
        let paths = paths.iter().filter(|path| is_outermost(path)).cloned().collect();
        Ok(RestorePaths { paths, dirs, homes })
    }

    fn add(&mut self, path: &MergedPath) {
        if !path.is_within_any(&self.closed.paths) {
            self.closed.paths.insert(path.clone());
            self.open.push(path.clone());
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

    /// Adds the directories that what was at a path needs: one that is gone comes back alone; one
    /// that moved, and what is in its place, goes along whole.
    fn close_then(&mut self, path: &MergedPath) -> Result<()> {
        if find(self.then, path)?.is_none() {
            return Ok(());
        }
        let mut above: Vec<_> = path.above().collect();
        above.reverse();
        for dir in above {
            let Some(was) = find(self.then, &dir)? else { break };
            match find(self.now, &dir)? {
                Some(is) if self.is_as_it_was(&was, &is)? => {}
                None if !self.now_by_then.contains_key(&dir) => {
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

    /// Adds the directory with which what is at a path moved there.
    fn close_now(&mut self, path: &MergedPath) -> Result<()> {
        let Some(is) = find(self.now, path)? else { return Ok(()) };
        let mut above = path.above();
        let moved = above.find_map(|dir| Some((self.then_by_now.get(&dir)?.clone(), dir)));
        let Some((there, here)) = moved else { return Ok(()) };
        let rest = &path.as_bytes()[here.as_bytes().len()..];
        let Some(there) = MergedPath::from_bytes(&[there.as_bytes(), rest].concat()) else {
            return Ok(());
        };
        if find(self.then, &there)?.is_some_and(|was| is_same(&was, &is)) {
            self.add(&here);
        }
        Ok(())
    }

    /// Whether a directory is the same one, and shows the same directory of the base.
    fn is_as_it_was(&self, was: &TreeObject, is: &TreeObject) -> Result<bool> {
        let shown = |view: &TreeView<'_>, dir: &TreeObject| {
            view.shown_base(dir).map_err(|source| at(dir.path(), source))
        };
        Ok(is_same(was, is) && shown(self.then, was)? == shown(self.now, is)?)
    }
}

fn is_same(was: &TreeObject, is: &TreeObject) -> bool {
    (was.attr().fileid, was.attr().kind) == (is.attr().fileid, is.attr().kind)
}

fn find(view: &TreeView<'_>, path: &MergedPath) -> Result<Option<TreeObject>> {
    match view.find(path) {
        Err(FsError::NotDirectory | FsError::NotFound) => Ok(None),
        found => found.map_err(|source| at(path, source)),
    }
}

/// Refuses a path that is in neither tree.
fn check_was_there(path: &MergedPath, trees: [&TreeView<'_>; 2]) -> Result<()> {
    for view in trees {
        if find(view, path)?.is_some() {
            return Ok(());
        }
    }
    let near = nearest(path, trees)?;
    Err(InspectError::NeverThere { path: path.clone(), near })
}

/// The paths with the most similar names in the closest directory above that was there; or else
/// this directory.
fn nearest(path: &MergedPath, trees: [&TreeView<'_>; 2]) -> Result<Vec<MergedPath>> {
    let mut missing = path.clone();
    for above in path.above() {
        let (mut names, mut is_there) = (BTreeSet::new(), false);
        for view in trees {
            let dir = find(view, &above)?.filter(|dir| dir.attr().kind == FileKind::Directory);
            if let Some(dir) = dir {
                let children = view.children(&dir).map_err(|source| at(&above, source))?;
                names.extend(children.into_iter().take(MAX_NAMES).map(|(name, _)| name));
                is_there = true;
            }
        }
        if is_there {
            let wanted = missing.name().map(|name| text_of(name.as_bytes())).unwrap_or_default();
            let edits = |name: &[u8]| strsim::damerau_levenshtein(&wanted, &text_of(name));
            let mut alike: Vec<_> =
                names.iter().map(|name| (edits(name.as_bytes()), above.join(name))).collect();
            alike.retain(|(edits, _)| *edits <= MAX_EDITS && wanted.chars().count() > *edits);
            alike.sort();
            let alike: Vec<_> = alike.into_iter().take(MAX_OFFERED).map(|(_, path)| path).collect();
            return Ok(if alike.is_empty() { vec![above] } else { alike });
        }
        missing = above;
    }
    Ok(Vec::new())
}

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
