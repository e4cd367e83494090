//! Compares the merged tree at two moments: at two checkpoints, or at one and now.
//!
//! Only paths that the saved rows name are looked up, and what is below a directory that only one
//! of the trees has. An object is the same at both moments if it has the same file number and type.

mod moves;
mod objects;
mod patch;

use std::collections::{BTreeMap, BTreeSet};

use super::diff::{ChangedFields, DiffOptions, Difference, DifferenceKind, at, is_dropping};
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::walk::{WalkControl, walk_past_denied};
use crate::delta::sqlite::Session;
use crate::delta::{ChangedRows, Checkpoint, MergedPath, StoreError};
use crate::overlay::{Change, TreeObject, TreeView};
use crate::vfs::{FileKind, FsError};
use moves::MovedDirs;
pub(in crate::inspect) use objects::is_same;
use objects::{as_base_object, differs};
pub use patch::{patch_between, stats_between};

/// Two moments of one session; or the fork point as one of two sessions knows it, and the present
/// of the other. Then every row of both may be one that differs.
pub struct Moments<'a> {
    /// The session as it shows the tree at the earlier moment.
    pub old: &'a OpenSession,
    /// The same, or the other session, at the later moment.
    pub new: &'a OpenSession,
    /// The earlier checkpoint.
    pub from: &'a Checkpoint,
    /// The later checkpoint; `None` for now.
    pub until: Option<&'a Checkpoint>,
}

/// The differences between two moments.
#[derive(Debug, Default)]
pub struct TreeDifferences {
    /// The differences, sorted by path. Each object below a directory that was added or deleted has
    /// its own; `old` is the object at the earlier moment.
    pub all: Vec<Difference>,
    /// What the base denies access to.
    pub denied: Vec<MergedPath>,
    /// Their objects at the earlier moment.
    earlier: Vec<Option<TreeObject>>,
    moves: MovedDirs,
}

impl Moments<'_> {
    /// Compares them.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn differences(&self, options: &DiffOptions) -> Result<TreeDifferences> {
        self.with_views(|old, new| self.differences_of(old, new, options, &|_, _| true))
    }

    /// The same, with both trees. Content is read only of the objects that `reads` chooses.
    pub(in crate::inspect) fn with_differences<T>(
        &self,
        options: &DiffOptions,
        reads: ReadsContent<'_>,
        f: impl FnOnce((&TreeView<'_>, &TreeView<'_>), TreeDifferences) -> Result<T>,
    ) -> Result<T> {
        self.with_views(|old, new| f((old, new), self.differences_of(old, new, options, reads)?))
    }

    fn with_views<T>(
        &self,
        f: impl FnOnce(&TreeView<'_>, &TreeView<'_>) -> Result<T>,
    ) -> Result<T> {
        self.old.with_tree(|old| self.new.with_tree(|new| f(old, new)))
    }

    fn differences_of(
        &self,
        old: &TreeView<'_>,
        new: &TreeView<'_>,
        options: &DiffOptions,
        reads: ReadsContent<'_>,
    ) -> Result<TreeDifferences> {
        let mut comparison = Comparison::new(old, new);
        let candidates = self.candidates(&mut comparison)?;
        comparison.find_moves(&candidates)?;
        comparison.sort_out(&candidates)?;
        comparison.walk_whole_dirs()?;
        comparison.pair_by_number();
        comparison.pair_by_path();
        comparison.finish(options, reads)
    }

    /// The paths at which the trees may differ.
    fn candidates(&self, comparison: &mut Comparison<'_>) -> Result<BTreeSet<MergedPath>> {
        // After both snapshots were taken: what changes later is in none.
        let rows = self.rows()?;
        let failed = |source| at(&MergedPath::root(), source);
        let mut paths = rows.paths;
        for view in [comparison.old, comparison.new] {
            for object in &rows.objects {
                paths.extend(view.paths_of(*object).map_err(failed)?);
            }
            for (dir, name) in &rows.entries {
                let dir = view.path_of_dir(*dir).map_err(failed)?;
                paths.extend(dir.map(|dir| dir.join(name)));
            }
        }
        Ok(paths)
    }

    fn rows(&self) -> Result<ChangedRows> {
        let (old, new) = (self.old.session(), self.new.session());
        let in_session = |session: &Session, rows: std::result::Result<_, StoreError>| {
            let session = session.path().to_owned();
            rows.map_err(|source| InspectError::Store { session, source })
        };
        if old.id() == new.id() {
            return in_session(new, new.changed_rows(self.from, self.until));
        }
        let mut rows = in_session(new, new.tree_rows())?;
        rows.extend(in_session(old, old.tree_rows())?);
        rows.extend(in_session(old, old.changed_rows(self.from, None))?);
        Ok(rows)
    }
}

/// Whether the content of an object is to be read, by its old and new paths.
pub(in crate::inspect) type ReadsContent<'a> = &'a dyn Fn(&MergedPath, &MergedPath) -> bool;

/// A comparison of two trees.
struct Comparison<'a> {
    old: &'a TreeView<'a>,
    new: &'a TreeView<'a>,
    moves: MovedDirs,
    /// Objects that only the old tree has, by path.
    removed: BTreeMap<MergedPath, TreeObject>,
    /// Objects that only the new tree has, by path.
    added: BTreeMap<MergedPath, TreeObject>,
    /// Objects that both trees have, by the new path.
    both: BTreeMap<MergedPath, (TreeObject, TreeObject)>,
    denied: BTreeSet<MergedPath>,
}

impl<'a> Comparison<'a> {
    fn new(old: &'a TreeView<'a>, new: &'a TreeView<'a>) -> Self {
        Self {
            old,
            new,
            moves: MovedDirs::default(),
            removed: BTreeMap::new(),
            added: BTreeMap::new(),
            both: BTreeMap::new(),
            denied: BTreeSet::new(),
        }
    }

    fn find(&mut self, view: &TreeView<'_>, path: &MergedPath) -> Result<Option<TreeObject>> {
        find(view, path, &mut self.denied)
    }

    /// Finds the directories that moved.
    fn find_moves(&mut self, candidates: &BTreeSet<MergedPath>) -> Result<()> {
        loop {
            let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
            for path in candidates {
                for path in [path.clone(), self.moves.old_path(path)] {
                    if let Some(dir) = self.find(self.old, &path)?.filter(is_dir) {
                        before.insert(dir.attr().fileid.0, path);
                    }
                }
                if let Some(dir) = self.find(self.new, path)?.filter(is_dir) {
                    after.insert(dir.attr().fileid.0, path.clone());
                }
            }
            let moved = before.into_iter().filter_map(|(number, from)| {
                let to = after.remove(&number)?;
                (from != to).then_some((from, to))
            });
            // What moves show of a moved directory may have moved on.
            if !self.moves.take(moved) {
                return Ok(());
            }
        }
    }

    /// Sorts the candidates out: objects that both trees have, or only one.
    fn sort_out(&mut self, candidates: &BTreeSet<MergedPath>) -> Result<()> {
        let mut pairs = BTreeSet::new();
        for path in candidates {
            pairs.insert((path.clone(), self.moves.new_path(path)));
            pairs.insert((self.moves.old_path(path), path.clone()));
        }
        for (from, to) in pairs {
            let before = self.find(self.old, &from)?;
            let after = self.find(self.new, &to)?;
            match (before, after) {
                (Some(before), Some(after)) if is_same(&before, &after) => {
                    self.both.insert(to, (before, after));
                }
                (before, after) => {
                    self.removed.extend(before.map(|before| (from, before)));
                    self.added.extend(after.map(|after| (to, after)));
                }
            }
        }
        for (to, (before, _)) in &self.both {
            self.removed.remove(before.path());
            self.added.remove(to);
        }
        Ok(())
    }

    /// Adds what is below directories that only one tree has.
    fn walk_whole_dirs(&mut self) -> Result<()> {
        let seen: BTreeSet<_> = self.both.values().map(|(old, _)| old.path().clone()).collect();
        let (old, new, mut denied) = (self.old, self.new, Vec::new());
        below(old, &mut self.removed, &seen, &mut denied)?;
        let seen: BTreeSet<_> = self.both.keys().cloned().collect();
        below(new, &mut self.added, &seen, &mut denied)?;
        self.denied.extend(denied);
        Ok(())
    }

    /// Pairs what only one tree has at its path by the file number.
    fn pair_by_number(&mut self) {
        let mut by_number: BTreeMap<u64, Vec<&MergedPath>> = BTreeMap::new();
        for (path, object) in &self.removed {
            by_number.entry(object.attr().fileid.0).or_default().push(path);
        }
        let mut pairs = Vec::new();
        for (to, after) in &self.added {
            let Some(paths) = by_number.get_mut(&after.attr().fileid.0) else { continue };
            let mut is_pair = |path: &&MergedPath| is_same(&self.removed[*path], after);
            if let Some(at) = paths.iter().position(&mut is_pair) {
                pairs.push((paths.remove(at).clone(), to.clone()));
            }
        }
        for (from, to) in pairs {
            if let (Some(before), Some(after)) =
                (self.removed.remove(&from), self.added.remove(&to))
            {
                self.both.insert(to, (before, after));
            }
        }
    }

    /// Pairs what is left and has one path: it was replaced.
    fn pair_by_path(&mut self) {
        let (removed, added, both) = (&mut self.removed, &mut self.added, &mut self.both);
        let paths: Vec<_> =
            removed.keys().filter(|path| added.contains_key(path)).cloned().collect();
        for path in paths {
            let is_dir = |objects: &BTreeMap<MergedPath, TreeObject>| is_dir(&objects[&path]);
            if is_dir(removed) == is_dir(added)
                && let (Some(before), Some(after)) = (removed.remove(&path), added.remove(&path))
            {
                both.insert(path, (before, after));
            }
        }
    }

    /// The differences that the options include.
    fn finish(mut self, options: &DiffOptions, reads: ReadsContent<'_>) -> Result<TreeDifferences> {
        let carried = self.carried_of_paths(options)?;
        let mut found = TreeDifferences { moves: self.moves, ..Default::default() };
        let is_shown = |object: &TreeObject| is_shown(options, self.new, object);
        for (path, before) in self.removed.into_iter().filter(|(_, object)| is_shown(object)) {
            found.push(DifferenceKind::Deleted, path, (Some(before), None));
        }
        for (path, after) in self.added.into_iter().filter(|(_, object)| is_shown(object)) {
            found.push(DifferenceKind::Added, path, (None, Some(after)));
        }
        for (path, (before, after)) in self.both {
            options.stop.check()?;
            if !is_chosen(options, self.new, &before, &after) {
                continue;
            }
            let reads = reads(before.path(), &path);
            let differs = differs((self.old, &before), (self.new, &after), reads)?;
            let is_retyped = before.attr().kind != after.attr().kind;
            let is_move = before.path() != after.path() && !found.moves.carried(&before, &after);
            let is_listed = differs.content
                || differs.mode
                || differs.owner
                || options.times && differs.mtime && !is_dir(&after);
            if is_move || is_listed || is_retyped {
                let kind = match before.path() == after.path() {
                    _ if is_retyped => DifferenceKind::Retyped,
                    true => DifferenceKind::Modified,
                    false => DifferenceKind::Renamed,
                };
                found.push_differing(kind, path, (before, after), (differs, !is_move));
            }
        }
        for (before, after) in carried {
            let path = after.path().clone();
            let kind = DifferenceKind::Renamed;
            found.push_differing(kind, path, (before, after), (ChangedFields::default(), true));
        }
        found.sort();
        found.denied = self.denied.into_iter().collect();
        Ok(found)
    }

    /// The selected objects that moved along with a directory that is not selected itself.
    fn carried_of_paths(&mut self, options: &DiffOptions) -> Result<Vec<(TreeObject, TreeObject)>> {
        let (old, new, selection) = (self.old, self.new, &options.selection);
        let mut carried = BTreeMap::new();
        let moves: Vec<_> = self.moves.iter().map(|(a, b)| (a.clone(), b.clone())).collect();
        for (from, to) in moves {
            let has = |dir: &MergedPath| selection.has(new, dir, true);
            let may_hold = selection.may_hold(&from) || selection.may_hold(&to);
            if selection.is_everything() || has(&from) || has(&to) || !may_hold {
                continue;
            }
            let moved = carried_by(old, new, &self.moves, &to, &mut self.denied)?;
            let chosen = moved.into_iter().filter(|(before, after)| {
                !self.both.contains_key(after.path()) && is_chosen(options, new, before, after)
            });
            // A directory may have moved along with another.
            carried.extend(chosen.map(|pair| (pair.1.path().clone(), pair)));
        }
        Ok(carried.into_values().collect())
    }
}

impl TreeDifferences {
    /// Sorts the differences by path, deletions before what is there now.
    fn sort(&mut self) {
        let (all, earlier) = (std::mem::take(&mut self.all), std::mem::take(&mut self.earlier));
        let mut both: Vec<_> = all.into_iter().zip(earlier).collect();
        let is_there = |difference: &Difference| difference.kind != DifferenceKind::Deleted;
        both.sort_by(|(a, _), (b, _)| (&a.path, is_there(a)).cmp(&(&b.path, is_there(b))));
        (self.all, self.earlier) = both.into_iter().unzip();
    }

    fn push(
        &mut self,
        kind: DifferenceKind,
        path: MergedPath,
        (before, after): (Option<TreeObject>, Option<TreeObject>),
    ) {
        let old = before.as_ref().and_then(as_base_object);
        self.earlier.push(before);
        let change = Change { after, ..Change::at(path.clone()) };
        let differs = ChangedFields::default();
        self.all.push(Difference { kind, differs, path, old, change });
    }

    fn push_differing(
        &mut self,
        kind: DifferenceKind,
        path: MergedPath,
        (before, after): (TreeObject, TreeObject),
        (differs, moved_with_parent): (ChangedFields, bool),
    ) {
        let old = as_base_object(&before);
        self.earlier.push(Some(before));
        let is_moved = kind == DifferenceKind::Renamed;
        let change = Change::at(path.clone());
        let change = Change { after: Some(after), is_moved, moved_with_parent, ..change };
        self.all.push(Difference { kind, differs, path, old, change });
    }
}

/// The object at a path of a tree; `None` also for what the base denies access to: it is added to
/// `denied`.
fn find(
    view: &TreeView<'_>,
    path: &MergedPath,
    denied: &mut BTreeSet<MergedPath>,
) -> Result<Option<TreeObject>> {
    match view.find(path) {
        Ok(found) => Ok(found),
        Err(FsError::NotDirectory | FsError::NotFound) => Ok(None),
        Err(FsError::Access) => {
            denied.insert(path.clone());
            Ok(None)
        }
        Err(source) => Err(at(path, source)),
    }
}

/// Adds everything below the directories among `objects`, but for what is `seen`.
fn below(
    view: &TreeView<'_>,
    objects: &mut BTreeMap<MergedPath, TreeObject>,
    seen: &BTreeSet<MergedPath>,
    denied: &mut Vec<MergedPath>,
) -> Result<()> {
    let dirs: Vec<_> = objects.values().filter(|object| is_dir(object)).cloned().collect();
    let mut walked = BTreeSet::new();
    for dir in dirs {
        let mut above = dir.path().above().take_while(|above| !seen.contains(above));
        if above.any(|above| walked.contains(&above)) {
            continue;
        }
        walked.insert(dir.path().clone());
        walk_past_denied(view, &dir, &|_| true, denied, &mut |_, object, _| {
            if seen.contains(object.path()) {
                return Ok(WalkControl::Past);
            }
            objects.entry(object.path().clone()).or_insert_with(|| object.clone());
            Ok(WalkControl::Deeper)
        })?;
    }
    Ok(())
}

/// What moved along with the directory that is at `to` now, and is the same: old and new object.
fn carried_by(
    old: &TreeView<'_>,
    new: &TreeView<'_>,
    moves: &MovedDirs,
    to: &MergedPath,
    denied: &mut BTreeSet<MergedPath>,
) -> Result<Vec<(TreeObject, TreeObject)>> {
    let mut carried = Vec::new();
    let Some(dir) = find(new, to, denied)? else { return Ok(carried) };
    let mut closed = Vec::new();
    walk_past_denied(new, &dir, &|_| true, &mut closed, &mut |_, object, _| {
        let from = moves.old_path(object.path());
        if let Some(before) = find(old, &from, denied)?.filter(|before| is_same(before, object)) {
            carried.push((before, object.clone()));
        }
        Ok(WalkControl::Deeper)
    })?;
    denied.extend(closed);
    Ok(carried)
}

fn is_shown(options: &DiffOptions, view: &TreeView<'_>, object: &TreeObject) -> bool {
    options.selection.has(view, object.path(), is_dir(object))
        && (options.client_temp_files || !is_dropping(object.path()))
}

/// Whether an object at both moments is chosen: by either path, and excluded by none.
fn is_chosen(
    options: &DiffOptions,
    view: &TreeView<'_>,
    before: &TreeObject,
    after: &TreeObject,
) -> bool {
    let is_excluded =
        |object: &TreeObject| options.selection.is_excluded(view, object.path(), is_dir(object));
    (is_shown(options, view, before) || is_shown(options, view, after))
        && !is_excluded(before)
        && !is_excluded(after)
}

fn is_dir(object: &TreeObject) -> bool {
    object.attr().kind == FileKind::Directory
}
