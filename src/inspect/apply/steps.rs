//! The steps of an apply, and their order.
//!
//! First, all objects that leave their path are taken to staging, the deepest first, so that each
//! path is still as in the base. Then objects are put at their paths, directories before their
//! entries. Last, attributes are set, the deepest first: an entry that is put into a directory
//! changes the directory's times.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::keep;
use super::record::PlacedState;
use super::target_dir::ApplyTarget;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::inspect::hunks::ChosenPart;
use crate::overlay::{MergedParts, PathRows};
use crate::vfs::{FileId, Time};
use crate::writeback::{Attrs, SeenObject, Staging, StagingDir, StagingSlot, TargetObject};

/// Takes an object from its path in the target to staging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Take {
    /// Its slot in staging.
    pub slot: StagingSlot,
    /// Its path in the target.
    pub from: BasePath,
    /// The object stays, and staging gets a hard link to it.
    pub stays: bool,
    /// The object that the plan saw there.
    pub seen: SeenObject,
    /// Number of its change.
    pub change: usize,
}

/// Puts an object from staging at its path in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PutStep {
    /// Its slot in staging.
    pub slot: StagingSlot,
    /// Whether it was made, or taken.
    pub dir: StagingDir,
    /// Its path in the target.
    pub to: BasePath,
    /// The file that it replaces.
    pub over: Option<SeenObject>,
    /// The object as it was made, without ctime; `None` if it is taken, in a journal of an older
    /// version, and until it is made.
    pub made: Option<PlacedState>,
    /// Number of its change.
    pub change: usize,
}

/// Sets attributes of an object in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// Its path after all puts.
    pub path: BasePath,
    pub attrs: Attrs,
    /// The attributes that the object had for the plan: only those are set that `attrs` changes.
    /// `None` in a journal of an older version, and until the object is made.
    pub from: Option<Attrs>,
    /// The object that the plan saw, or that was made; `None` of a directory in a journal of an
    /// older version, and until the object is made.
    pub seen: Option<SeenObject>,
    /// Number of its change; `None` for a directory in which only entries changed.
    pub change: Option<usize>,
}

/// All steps, in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub takes: Vec<Take>,
    pub puts: Vec<PutStep>,
    pub sets: Vec<Set>,
}

/// A change that is applied, and that the session then drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedChange {
    /// Path in the merged tree; of a removed object, the path that it had.
    pub path: MergedPath,
    /// Path before, if it moved.
    pub from: Option<MergedPath>,
    /// Number and ctime of the session's object when the plan was made; `None` if it is removed. If
    /// they differ later, the session must keep its object.
    pub object: Option<(FileId, Time)>,
    /// The session's rows for the path when the plan was made; `None` in a journal of an older
    /// version.
    pub planned: Option<PathRows>,
    /// The base object's ctime after the apply; `None` before, and if something else changed the
    /// object since its step.
    pub base_ctime: Option<Time>,
    /// The base file had further hard links when the plan was made.
    pub was_linked: bool,
    /// Mode, owner and group that the apply was to give a directory, if something else set others
    /// during it: those stay.
    pub not_given: Option<[u32; 3]>,
    /// What of the object is merged with the base's own changes.
    pub merged: MergedParts,
    /// No change below it is left out: the session may drop all its rows below.
    pub is_whole: bool,
    /// Only this part of a file is applied: the session keeps the rest.
    pub part: Option<ChosenPart>,
    /// Number of paths that it counts for, as in `diff`: for a removed directory, all its entries
    /// too; 0 if only a directory's times differ, which follow its entries.
    pub paths: u64,
}

impl Set {
    /// Whether a file is as this step left it: each attribute is the one that was set, or, if the
    /// user may not set it, the one before.
    pub(super) fn is_as_left(&self, now: &TargetObject) -> bool {
        let from = self.from.as_ref().unwrap_or(&self.attrs);
        let is_one_of =
            |get: &dyn Fn(&Attrs) -> u32| [get(&self.attrs), get(from)].contains(&get(&now.attrs));
        let is_same = |seen: &SeenObject| seen.is(&now.seen) && seen.size == now.seen.size;
        let has_time = [self.attrs.mtime, from.mtime].contains(&now.attrs.mtime);
        self.seen.as_ref().is_none_or(is_same)
            && has_time
            && is_one_of(&|attrs| attrs.mode)
            && is_one_of(&|attrs| attrs.uid)
            && is_one_of(&|attrs| attrs.gid)
    }
}

impl AppliedChange {
    /// Whether the session had an entry at its path when the plan was made.
    pub fn was_entry(&self) -> bool {
        self.planned.is_some_and(|planned| planned.entry.is_some())
    }

    /// Number of paths that these changes count for. Directories that differ only in times count
    /// only if nothing else does.
    pub fn count_paths<'c>(changes: impl Iterator<Item = &'c Self>) -> u64 {
        let (mut paths, mut times) = (0, 0);
        for change in changes {
            paths += change.paths;
            times += u64::from(change.paths == 0);
        }
        if paths == 0 { times } else { paths }
    }

    /// The number of changes that one request has to have, because the session finds their paths
    /// only together: directories that moved and held other objects that moved by themselves,
    /// before or after, and those with which they changed places, with the directories above them.
    pub fn count_inseparable(applied: &[Self]) -> usize {
        let bound =
            Self::with_dirs_above(Self::moved_containers(&applied.iter().collect::<Vec<_>>()));
        applied.iter().filter(|applied| bound.contains(&applied.path)).count()
    }

    /// The moved directories that held other moved objects, before or after, and those with which
    /// they changed places.
    fn moved_containers(applied: &[&Self]) -> BTreeSet<MergedPath> {
        let moved =
            applied.iter().filter_map(|applied| Some((&applied.path, applied.from.as_ref()?)));
        let after: BTreeMap<_, _> =
            moved.map(|(path, from)| (path.clone(), from.clone())).collect();
        let before: BTreeMap<_, _> = after.iter().map(|(path, from)| (from, path)).collect();
        let paths: BTreeSet<_> = after.keys().cloned().collect();
        let sources: BTreeSet<_> = after.values().cloned().collect();
        let is_holder = |(path, from): &(&MergedPath, &MergedPath)| {
            path.first_below(&paths).is_some() || from.first_below(&sources).is_some()
        };
        let mut open: Vec<_> = after.iter().filter(is_holder).map(|(path, _)| path).collect();
        let mut moved_containers = BTreeSet::new();
        while let Some(path) = open.pop() {
            if moved_containers.insert(path.clone()) {
                open.extend(before.get(path));
                open.extend(after.get(path).and_then(|from| Some(after.get_key_value(from)?.0)));
            }
        }
        moved_containers
    }

    fn with_dirs_above(paths: impl IntoIterator<Item = MergedPath>) -> BTreeSet<MergedPath> {
        let mut all = BTreeSet::new();
        for mut path in paths {
            while all.insert(path.clone()) {
                path = path.parent();
            }
        }
        all
    }

    /// Splits changes into requests of at most `most` changes each, by which the session drops
    /// them. At most as many may be [bound](Self::count_inseparable) to one request.
    pub fn in_requests(mut applied: Vec<&Self>, most: usize) -> Vec<Vec<&Self>> {
        // Moves come first, with the directories above them: the base already has the moved objects
        // at their new paths, and the session finds objects at or below the old paths only
        // afterwards. Directories that held moved objects come before these.
        let moved_containers = Self::with_dirs_above(Self::moved_containers(&applied));
        let moved = applied.iter().filter(|applied| applied.from.is_some());
        let moved = Self::with_dirs_above(moved.map(|applied| applied.path.clone()));
        // A directory before its entries.
        applied.sort_by(|a, b| a.path.cmp(&b.path));
        applied.sort_by_key(|applied| {
            (!moved_containers.contains(&applied.path), !moved.contains(&applied.path))
        });
        let mut requests: Vec<_> = applied.chunks(most).map(<[_]>::to_vec).collect();
        for request in &mut requests {
            request.sort_by(|a, b| a.path.cmp(&b.path));
        }
        requests
    }
}

impl Steps {
    pub(super) fn len(&self) -> usize {
        self.takes.len() + self.puts.len() + self.sets.len()
    }

    /// Adds to the puts and the sets what the staging has: the objects that were made, with digests
    /// if an undo is to compare them.
    pub(super) fn note_made(&mut self, target: &ApplyTarget<'_>, keeps: bool) -> Result<()> {
        for put in self.puts.iter_mut().filter(|put| put.dir == StagingDir::New) {
            let path = Staging::path_of(put.dir, put.slot);
            let Some(made) = target.dir.object(&path)? else { continue };
            let digest = if keeps { keep::digest(&target.dir, &path, &made)? } else { None };
            let seen = SeenObject { ctime: None, ..made.seen };
            put.made = Some(PlacedState { seen, attrs: made.attrs, digest });
        }
        let puts: HashMap<&BasePath, &PutStep> =
            self.puts.iter().map(|put| (&put.to, put)).collect();
        for set in self.sets.iter_mut().filter(|set| set.from.is_none()) {
            let Some(made) = made_path(&puts, &set.path) else { continue };
            let made = target.dir.object(&made)?;
            if let Some(made) = made.filter(|made| made.seen.kind == set.attrs.kind) {
                set.seen = Some(SeenObject { ctime: None, ..made.seen });
                set.from = Some(made.attrs);
            }
        }
        Ok(())
    }

    /// Sorts the steps into the order in which they run.
    pub(super) fn sort(&mut self) {
        // Hard links before any move; they change the files' ctimes, which are not compared then.
        let linked: Vec<(u64, u64)> =
            self.takes.iter().filter(|t| t.stays).map(|t| (t.seen.dev, t.seen.ino)).collect();
        let linked: std::collections::HashSet<_> = linked.into_iter().collect();
        let seen = self.takes.iter_mut().map(|take| &mut take.seen);
        let over = self.puts.iter_mut().filter_map(|put| put.over.as_mut());
        for seen in seen.chain(over).filter(|seen| linked.contains(&(seen.dev, seen.ino))) {
            seen.ctime = None;
        }
        let depth = |path: &BasePath| path.components().count();
        self.takes.sort_by_key(|take| (!take.stays, std::cmp::Reverse(depth(&take.from))));
        self.puts.sort_by(|a, b| a.to.cmp(&b.to));
        self.sets.sort_by_key(|set| std::cmp::Reverse(depth(&set.path)));
    }
}

/// The path in the staging of an object that is to be put at or above `path`; `None` if the object
/// is taken there, or stays.
fn made_path(puts: &HashMap<&BasePath, &PutStep>, path: &BasePath) -> Option<BasePath> {
    let above = std::iter::successors(Some(path.clone()), |path| Some(path.split()?.0));
    let put = above.filter_map(|above| puts.get(&above)).next()?;
    if put.dir == StagingDir::Taken {
        return None;
    }
    let (made, below) = (Staging::path_of(put.dir, put.slot), put.to.as_bytes().len());
    BasePath::from_bytes(&[made.as_bytes(), &path.as_bytes()[below..]].concat())
}
