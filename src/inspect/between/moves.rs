//! Directories that moved between two moments.

use std::collections::BTreeMap;

use crate::delta::MergedPath;
use crate::overlay::TreeObject;

/// Old and new paths of the directories that moved.
#[derive(Debug, Default)]
pub(super) struct MovedDirs {
    new_by_old: BTreeMap<MergedPath, MergedPath>,
    old_by_new: BTreeMap<MergedPath, MergedPath>,
}

impl MovedDirs {
    /// Takes over moves; returns whether one was not known.
    pub fn take(&mut self, moves: impl Iterator<Item = (MergedPath, MergedPath)>) -> bool {
        let mut is_any = false;
        for (from, to) in moves {
            is_any |= self.new_by_old.insert(from.clone(), to.clone()).as_ref() != Some(&to);
            self.old_by_new.insert(to, from);
        }
        is_any
    }

    /// The path that an object at an old path has now, if its directories alone moved.
    pub fn new_path(&self, old: &MergedPath) -> MergedPath {
        mapped(&self.new_by_old, old)
    }

    /// The path that an object at a new path had, if its directories alone moved.
    pub fn old_path(&self, new: &MergedPath) -> MergedPath {
        mapped(&self.old_by_new, new)
    }

    /// Whether an object moved only because a directory above it did.
    pub fn carried(&self, before: &TreeObject, after: &TreeObject) -> bool {
        let (from, to) = (before.path(), after.path());
        from.name() == to.name() && self.new_path(&from.parent()) == to.parent()
    }

    /// The directories that moved: old and new path.
    pub fn iter(&self) -> impl Iterator<Item = (&MergedPath, &MergedPath)> {
        self.new_by_old.iter()
    }
}

/// A path with the closest directory that moved, or itself, replaced.
fn mapped(moves: &BTreeMap<MergedPath, MergedPath>, path: &MergedPath) -> MergedPath {
    if let Some(to) = moves.get(path) {
        return to.clone();
    }
    for dir in path.above() {
        if let Some(to) = moves.get(&dir) {
            let rest = &path.as_bytes()[dir.as_bytes().len()..];
            let moved = MergedPath::from_bytes(&[to.as_bytes(), rest].concat());
            return moved.unwrap_or_else(|| path.clone());
        }
    }
    path.clone()
}
