//! What an undo changes, and what stands against it.

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

/// What becomes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoChange {
    /// The path, as it is when all is done; of what is removed, as it is now.
    pub path: MergedPath,
    /// What becomes of it.
    pub kind: UndoKind,
    /// It is a directory.
    pub is_dir: bool,
    /// What comes or goes with it, of a directory.
    pub held: DirContents,
}

/// What is in a directory, and comes or goes with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirContents {
    /// Files, links and other things that are no directories.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Sizes of the files, in bytes.
    pub bytes: u64,
}

/// How.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoKind {
    /// It is there again.
    Restored,
    /// It has its old content or attributes again.
    Changed,
    /// It goes.
    Removed,
    /// It is moved back from this path.
    Moved(MergedPath),
}

/// What changed since the apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoDrift {
    /// Where it is.
    pub path: MergedPath,
    /// What happened.
    pub why: &'static str,
    /// Nothing can bring it back.
    pub is_lost: bool,
    /// The change of the apply that it is about.
    pub(super) change: usize,
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

    /// What is below `top`, without `moved`, which leave it first.
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

/// Counts what comes and goes with the directories of a plan.
pub(super) fn count_held(
    place: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    plan: &mut UndoPlan,
) -> Result<()> {
    let moved: HashSet<_> = plan.moved().cloned().collect();
    let restores: HashMap<_, _> =
        plan.restores.iter().map(|r| (MergedPath::of_base(&r.path), &r.name)).collect();
    // The directory that goes, or the one that comes, in which the next changes are.
    let (mut going, mut coming): (Option<MergedPath>, Option<usize>) = (None, None);
    for at in 0..plan.changes.len() {
        let UndoChange { path, kind, is_dir, .. } = &plan.changes[at];
        match kind {
            UndoKind::Removed if going.as_ref().is_some_and(|dir| path.is_within(dir)) => {}
            UndoKind::Removed if *is_dir => {
                going = Some(path.clone());
                let held = DirContents::below(&place.target, &target_path(path), &moved)?;
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
