//! The changes of an undo, and the drift that prevents some of them.

use std::collections::{HashMap, HashSet};

use super::plan::target_path;
use super::record::Record;
use super::target_dir::ApplyTarget;
use super::undo_plan::UndoPlan;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{Target, TargetObject, UndoDir};

/// What an undo does at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoChange {
    /// Path after the undo; of a removed object, its current path.
    pub path: MergedPath,
    /// Kind of the change.
    pub kind: UndoKind,
    /// It is a directory.
    pub is_dir: bool,
    /// Of a directory: descendants that are restored or removed with it.
    pub held: DirContents,
    /// Number of the apply's change, if it is one.
    pub(super) change: Option<usize>,
}

/// Counts of descendants that are restored or removed with a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirContents {
    /// Files, symbolic links and other objects that are no directories.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Total size of the regular files, in bytes.
    pub bytes: u64,
}

/// Kind of an undo's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoKind {
    /// A removed object is restored.
    Restored,
    /// The old content or attributes are restored.
    Changed,
    /// The object is removed.
    Removed,
    /// The object is moved back from this path.
    Moved(MergedPath),
}

/// A change of the target since the apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoDrift {
    /// Path of the object.
    pub path: MergedPath,
    /// The kind of drift, in words.
    pub why: &'static str,
    /// The object cannot be restored, not even with `force`.
    pub is_lost: bool,
    /// Number of the apply's change.
    pub(super) change: usize,
}

impl UndoPlan {
    /// Number of paths that the changes count for, as in `diff`.
    pub fn count_paths(&self) -> u64 {
        self.counted().map(|(_, paths)| paths).sum()
    }

    /// Number of paths for which each of the apply's changes counts, by its number.
    pub(super) fn paths_by_change(&self) -> HashMap<usize, u64> {
        let mut by_change = HashMap::new();
        for (change, paths) in self.counted() {
            if let Some(number) = change.change {
                *by_change.entry(number).or_default() += paths;
            }
        }
        by_change
    }

    /// The changes with the number of their paths. A directory that is restored or removed counts
    /// for all that it holds, also for the changes in it.
    fn counted(&self) -> impl Iterator<Item = (&UndoChange, u64)> {
        let mut dir: Option<&UndoChange> = None;
        self.changes.iter().map(move |change| {
            if dir.is_some_and(|dir| dir.covers(change)) {
                return (change, 0);
            }
            if change.is_whole_dir() {
                dir = Some(change);
            }
            (change, 1 + change.held.files + change.held.dirs)
        })
    }

    /// The drifted objects that the steps replace or remove. Attributes that are set do not count.
    pub fn overwritten(&self) -> impl Iterator<Item = &MergedPath> {
        let moved: HashSet<_> = self.moved().map(MergedPath::of_base).collect();
        let taken = self.steps.takes.iter().map(|take| &take.from);
        let taken: HashSet<_> = taken.chain(&self.replaced).map(MergedPath::of_base).collect();
        self.drifted.iter().map(|drift| &drift.path).filter(move |path| {
            // What is moved out of a removed directory stays.
            let mut from_path_up = std::iter::once((*path).clone()).chain(path.above());
            from_path_up.find(|path| taken.contains(path)).is_some_and(|top| !moved.contains(&top))
        })
    }
}

impl UndoChange {
    /// A change of attributes alone.
    pub(super) fn of_attributes(path: MergedPath, is_dir: bool, change: Option<usize>) -> Self {
        Self { path, kind: UndoKind::Changed, is_dir, held: DirContents::default(), change }
    }

    /// Whether a directory is restored or removed with all that it holds.
    pub fn is_whole_dir(&self) -> bool {
        self.is_dir && matches!(self.kind, UndoKind::Removed | UndoKind::Restored)
    }

    /// Whether `other` is part of this change of a whole directory, and in its `held`.
    pub fn covers(&self, other: &Self) -> bool {
        other.kind == self.kind && other.path.is_within(&self.path)
    }
}

impl DirContents {
    fn add(&mut self, object: &TargetObject) {
        if object.is_dir() {
            self.dirs += 1;
            return;
        }
        self.files += 1;
        if object.seen.kind == FileKind::Regular {
            self.bytes = self.bytes.saturating_add(object.seen.size);
        }
    }

    fn add_all(&mut self, more: Self) {
        self.files += more.files;
        self.dirs += more.dirs;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    /// Counts the objects below `top`, without those in `moved`, which leave it first.
    fn below(target: &Target, top: &BasePath, moved: &HashSet<BasePath>) -> Result<Self> {
        let mut held = Self::default();
        target.walk(top, &mut |path, object| {
            let is_held = !moved.contains(path);
            if is_held && path != top {
                held.add(object);
            }
            is_held
        })?;
        Ok(held)
    }
}

/// Counts the descendants of directories that a plan restores or removes.
pub(super) fn count_held(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    plan: &mut UndoPlan,
) -> Result<()> {
    let moved: HashSet<_> = plan.moved().cloned().collect();
    let restores: HashMap<_, _> =
        plan.restores.iter().map(|r| (MergedPath::of_base(&r.path), &r.name)).collect();
    // The removed directory, and the index of the restored one, that contain the next changes.
    let (mut going, mut coming): (Option<MergedPath>, Option<usize>) = (None, None);
    for at in 0..plan.changes.len() {
        let UndoChange { path, kind, is_dir, .. } = &plan.changes[at];
        match kind {
            UndoKind::Removed if going.as_ref().is_some_and(|dir| path.is_within(dir)) => {}
            UndoKind::Removed if *is_dir => {
                going = Some(path.clone());
                let held = DirContents::below(&target.dir, &target_path(path), &moved)?;
                plan.changes[at].held = held;
            }
            UndoKind::Restored => {
                let above = coming.filter(|dir| path.is_within(&plan.changes[*dir].path));
                let Some(name) = restores.get(path) else { continue };
                let kept = UndoDir::place(&record.round(), name);
                let mut held = DirContents::below(dir.target(), &kept, &HashSet::new())?;
                let dir_at = above.unwrap_or(at);
                if above.is_some() {
                    dir.target().object(&kept)?.iter().for_each(|object| held.add(object));
                } else if *is_dir {
                    coming = Some(at);
                }
                plan.changes[dir_at].held.add_all(held);
            }
            _ => {}
        }
    }
    Ok(())
}
