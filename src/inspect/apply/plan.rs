//! The plan of an apply: options, steps, and the changes that are left out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Skipped;
use super::advice::ApplyAdvice;
use super::drift::Drifted;
use super::last_apply::LastApply;
use super::merge::StepContent;
use super::steps::{AppliedChange, Set, Steps};
use super::unchanged::DroppedCopy;
use crate::base::{BaseAttr, BasePath};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::hunks::ChosenHunks;
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::overlay::{Change, TreeObject};
use crate::vfs::FileKind;
use crate::writeback::{Attrs, StagingDir, StagingSlot};

/// Which changes are applied, and how drift is handled.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Only changes at, below or moved from the selected paths. A directory is removed or moved
    /// whole, or stays.
    pub selection: Selection,
    /// Of these, only the chosen changes, or the chosen hunks of them.
    pub chosen: Option<Arc<ChosenHunks>>,
    /// Also apply files that clients create for themselves, such as `.nfs*`.
    pub client_temp_files: bool,
    /// Overwrite drifted objects.
    pub force: bool,
    /// Leave out drifted objects that cannot be merged.
    pub skip_drifted: bool,
    /// Merge text with conflict markers, as git does, where lines conflict.
    pub conflict_markers: bool,
    /// Overwrite drifted objects at and below these paths.
    pub take_session: Vec<MergedPath>,
    /// Leave out drifted objects at and below these paths.
    pub take_base: Vec<MergedPath>,
    /// Do nothing if only times of directories differ, which follow from their entries.
    pub needs_difference: bool,
    /// Also apply set-user-ID and set-group-ID files, and device nodes.
    pub special: bool,
    /// Keep replaced and removed objects for an undo, up to this many bytes on disk. `None` keeps
    /// nothing, and removes the objects that an earlier apply kept.
    pub keep: Option<u64>,
}

/// What an apply would do.
#[derive(Debug, Default)]
pub struct ApplyPlan {
    /// The session's changes that have steps; if empty, there is nothing to apply.
    pub changes: Vec<AppliedChange>,
    /// Drifted objects, sorted by path.
    pub drifted: Vec<Drifted>,
    /// The changes that would overwrite a drifted object, and for which no option decides: nothing
    /// is written, and the totals do not have them.
    pub undecided: BTreeSet<MergedPath>,
    /// Further drifted objects, which [`ApplyOptions::take_session`] overwrites, sorted by path.
    pub overruled: Vec<Drifted>,
    /// Files that both the session and the base changed, and that are merged.
    pub merged: Vec<Merged>,
    /// Copies without a change, which the session drops when the rest is applied.
    pub unchanged: Vec<DroppedCopy>,
    /// Changes that are left out, with the reason.
    pub left_out: Vec<Skipped>,
    /// Directories in `left_out` that hold entries that are not selected.
    pub split: Vec<MergedPath>,
    /// A set-user-ID file, set-group-ID file or device node is left out by
    /// [`ApplyOptions::special`].
    pub leaves_special_out: bool,
    /// Set-user-ID files, set-group-ID files and device nodes that are made.
    pub special: Vec<Special>,
    /// Extended attributes of host files that their replacements do not get.
    pub losses: Vec<Loss>,
    /// Total size of the files that are written, in bytes.
    pub bytes: u64,
    /// Data in these files, in bytes: the rest are holes.
    pub data_bytes: u64,
    /// Number of files, links and other objects that are written.
    pub files: u64,
    /// Number of removed objects; a directory counts once, with all that is in it.
    pub deletions: u64,
    /// Number of directories among the removed objects.
    pub deleted_dirs: u64,
    /// Number of objects of the target that are only moved; a directory counts once.
    pub moves: u64,
    /// Number of hard links that are made.
    pub links: u64,
    /// Number of directories that are made.
    pub new_dirs: u64,
    /// Objects that only get other attributes.
    pub attributes: AttributeCounts,
    /// Replaced and removed objects, in bytes on disk; 0 if they are not kept.
    pub kept_bytes: u64,
    /// Git directories in which the base changed what the session changed too.
    pub git_drifted: BTreeSet<MergedPath>,
    /// The changes that are left out with a git directory, though their own object did not drift;
    /// and the directory of each, and whether it is left to the base.
    pub(super) left_with_git: BTreeMap<MergedPath, (MergedPath, bool)>,
    /// The last apply, if it was to another directory: the objects that it kept are removed.
    pub ends_undo_of: Option<LastApply>,
    /// Changes with steps that are left out: number and reason.
    pub(super) refused: Vec<(usize, Skipped)>,
    /// Changes that are left out because a client changed them after the plan was shown.
    pub(super) changed: Vec<Skipped>,
    /// [`fingerprint`] of each change.
    pub(super) fingerprints: HashSet<u64>,
    /// [`fingerprint`] of each chosen object that has no difference: it is not shown as a change.
    pub(super) without_difference: HashSet<u64>,
    /// [`fingerprint`] of each changed directory of whose mode and owner the base has the same.
    pub(super) set_alike: HashSet<u64>,
    /// Drifted objects that [`ApplyOptions::take_base`] leaves out, with the change of each.
    pub(super) kept_in_base: BTreeMap<MergedPath, KeptInBase>,
    /// The paths of those changes, and of all changes in directories among them.
    pub(super) left_to_base: BTreeSet<MergedPath>,
    pub(super) steps: Steps,
    pub(super) makes: Vec<Make>,
    /// Attributes of the top after the last step.
    pub(super) top: Option<Attrs>,
}

/// The share of one change in the totals of [`ApplyPlan`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChangeSize {
    pub bytes: u64,
    pub data_bytes: u64,
    pub files: u64,
    pub deletions: u64,
    pub deleted_dirs: u64,
    pub moves: u64,
    pub links: u64,
    pub new_dirs: u64,
    pub attributes: AttributeCounts,
}

/// Numbers of objects that only get other attributes, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttributeCounts {
    /// Files that get permission bits.
    pub modes: u64,
    /// Files that get an owner or group, and no permission bits.
    pub owners: u64,
    /// Files that get only times.
    pub times: u64,
    /// Directories that get permission bits, an owner or a group.
    pub dirs: u64,
}

impl AttributeCounts {
    /// Counts a file whose attributes change from `old` to `new`.
    pub(super) fn add_file(&mut self, old: &BaseAttr, new: &Attrs) {
        let count = if old.mode != new.mode {
            &mut self.modes
        } else if (old.uid, old.gid) != (new.uid, new.gid) {
            &mut self.owners
        } else if old.mtime != new.mtime {
            &mut self.times
        } else {
            return;
        };
        *count += 1;
    }
}

impl ApplyPlan {
    /// Adds the shares of the changes to the totals.
    pub(super) fn count<'c>(&mut self, counts: impl Iterator<Item = &'c ChangeSize>) {
        for counts in counts {
            self.bytes = self.bytes.saturating_add(counts.bytes);
            self.data_bytes = self.data_bytes.saturating_add(counts.data_bytes);
            self.files += counts.files;
            self.deletions += counts.deletions;
            self.deleted_dirs += counts.deleted_dirs;
            self.moves += counts.moves;
            self.links += counts.links;
            self.new_dirs += counts.new_dirs;
            self.attributes.modes += counts.attributes.modes;
            self.attributes.owners += counts.attributes.owners;
            self.attributes.times += counts.attributes.times;
            self.attributes.dirs += counts.attributes.dirs;
        }
    }

    /// Empties a plan that would only set times of directories; `top` is the target's top. If it
    /// leaves changes out, these stay in it, and the directories keep their times.
    pub(super) fn drop_times_alone(&mut self, top: &BaseAttr) {
        let refused: HashSet<_> = self.refused.iter().map(|(number, _)| *number).collect();
        let mut rest = self.changes.iter().enumerate().filter(|(at, _)| !refused.contains(at));
        if rest.all(|(_, change)| change.paths == 0) {
            if self.left_out.is_empty() {
                self.changes.clear();
            }
            (self.steps, self.top) = (Steps::default(), Some(attrs_of(top)));
        }
    }

    /// Number of directories that only get other times.
    pub fn times_alone(&self) -> u64 {
        if self.steps.len() == 0 {
            return 0;
        }
        let is_alone = |at: &usize| self.changes.get(*at).is_some_and(|change| change.paths == 0);
        let differs = |set: &&Set| {
            set.change.as_ref().is_some_and(is_alone)
                && set.from.as_ref().is_none_or(|from| from.mtime != set.attrs.mtime)
        };
        // The top has no step.
        let is_top =
            |change: &&AppliedChange| change.paths == 0 && change.path == MergedPath::root();
        let dirs = self.steps.sets.iter().filter(differs).count();
        (dirs + self.changes.iter().filter(is_top).count()) as u64
    }

    /// Whether [`ApplyOptions::take_base`] leaves a drifted object out.
    pub fn is_taken_from_base(&self, drifted: &Drifted) -> bool {
        self.kept_in_base.contains_key(&drifted.path)
    }

    /// Whether the object at a path drifted.
    pub fn has_drifted(&self, path: &MergedPath) -> bool {
        self.drifted.binary_search_by(|drifted| drifted.path.cmp(path)).is_ok()
    }

    /// Whether [`ApplyOptions::take_session`] overwrites a drifted object at a path.
    pub fn is_overruled(&self, path: &MergedPath) -> bool {
        self.overruled.binary_search_by(|drifted| drifted.path.cmp(path)).is_ok()
    }

    /// The drifted objects of the target that the steps replace or remove. Attributes that are set
    /// do not count.
    pub fn overwritten(&self) -> impl Iterator<Item = &MergedPath> {
        let put: HashSet<_> = self.steps.puts.iter().map(|put| (put.dir, put.slot)).collect();
        let takes = self
            .steps
            .takes
            .iter()
            .filter(move |take| !take.stays && !put.contains(&(StagingDir::Taken, take.slot)));
        let takes = takes.map(|take| (MergedPath::of_base(&take.from), take.change));
        let puts = self.steps.puts.iter().filter(|put| put.over.is_some());
        let puts = puts.map(|put| (MergedPath::of_base(&put.to), put.change));
        let (mut gone, mut changes) = (BTreeSet::new(), HashSet::new());
        for (path, change) in takes.chain(puts) {
            gone.insert(path);
            changes.extend(self.changes.get(change).map(|change| &change.path));
        }
        let drifted = self.drifted.iter().chain(&self.overruled).map(|drifted| &drifted.path);
        drifted.filter(move |path| {
            changes.contains(path)
                || gone.contains(*path)
                || path.above().any(|above| gone.contains(&above))
        })
    }

    /// Whether each change is left out, so that nothing is written.
    pub(super) fn writes_nothing(&self) -> bool {
        self.refused.len() == self.changes.len()
    }

    /// Changes that were left out before they got steps.
    pub(super) fn left_out_without_steps(&self) -> Vec<Skipped> {
        let refused: HashSet<_> = self.refused.iter().map(|(_, refused)| &refused.path).collect();
        self.left_out.iter().filter(|left| !refused.contains(&left.path)).cloned().collect()
    }

    /// Number of changes that are left out for another reason than [`ApplyOptions::take_base`].
    pub fn left_out_unasked(&self) -> usize {
        self.left_out.iter().filter(|left| !self.left_to_base.contains(&left.path)).count()
    }

    /// Paths of the changes that [`ApplyOptions::take_base`] leaves out, and of all changes in
    /// directories among them.
    pub fn left_to_base(&self) -> &BTreeSet<MergedPath> {
        &self.left_to_base
    }

    /// The changes that [`ApplyOptions::take_base`] leaves out.
    pub fn kept_in_base(&self) -> impl Iterator<Item = &KeptInBase> {
        self.kept_in_base.values()
    }
}

/// A change that [`ApplyOptions::take_base`] leaves out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptInBase {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// What of it.
    pub extent: KeptExtent,
}

/// What the session gives up at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptExtent {
    /// All that it changed at and below the path.
    Whole,
    /// Only the mode or owner of a directory that both sides have, not its entries.
    Attributes,
    /// The removal of one object in a directory that the session removed, not that of the others.
    InRemovedDir,
}

/// A file that is merged with the base's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// The text has conflict markers.
    pub has_conflicts: bool,
}

/// A set-user-ID file, set-group-ID file or device node that is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Special {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Its kind, as a noun phrase.
    pub what: &'static str,
}

/// Extended attributes that an object of the target loses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// The names of the attributes.
    pub names: Vec<String>,
    /// Why.
    pub why: &'static str,
}

/// An object that is made in staging before it is placed.
#[derive(Debug, Clone)]
pub(super) struct Make {
    pub slot: StagingSlot,
    pub path: MergedPath,
    /// Slot of the object that this one is a hard link to.
    pub link: Option<StagingSlot>,
    /// Number of its change.
    pub change: usize,
    /// The target object that it replaces, and whose extended attributes it gets.
    pub replaces: Option<BasePath>,
    /// Where its content comes from.
    pub content: StepContent,
    pub attrs: Attrs,
}

/// A hash of a change, to recognise it in a later plan. It covers the path, the old path, and the
/// object's number and ctime; of a directory, whose ctime follows its entries, the mode and owner
/// instead. It does not cover the base's state: see [`Drifted`].
pub(super) fn fingerprint(change: &Change) -> u64 {
    let mut hasher = DefaultHasher::new();
    change.path.hash(&mut hasher);
    change.before.as_ref().map(|before| &before.path).hash(&mut hasher);
    change.after.as_ref().map(|after| after.attr().fileid).hash(&mut hasher);
    if let Some(after) = &change.after {
        let attr = after.attr();
        match attr.kind {
            FileKind::Directory => (attr.mode, attr.uid, attr.gid).hash(&mut hasher),
            _ => attr.ctime.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// The attributes that an object of the merged tree has.
pub(super) fn attrs(object: &TreeObject) -> Attrs {
    let attr = object.attr();
    Attrs { kind: attr.kind, mode: attr.mode, uid: attr.uid, gid: attr.gid, mtime: attr.mtime }
}

/// The attributes that an object of the host has.
pub(super) fn attrs_of(attr: &BaseAttr) -> Attrs {
    Attrs { kind: attr.kind, mode: attr.mode, uid: attr.uid, gid: attr.gid, mtime: attr.mtime }
}

/// The path in the target of a path in the merged tree.
pub(super) fn target_path(path: &MergedPath) -> BasePath {
    BasePath::from_bytes(path.as_bytes().get(1..).unwrap_or_default()).unwrap_or_default()
}

/// The directory that is written to: the base, or a copy of it.
pub(super) fn directory(opened: &OpenSession, to: Option<&Path>) -> Result<PathBuf> {
    match (to, opened.base_path()) {
        (Some(to), _) => Ok(to.to_owned()),
        (None, Some(base)) => Ok(base.to_owned()),
        (None, None) => Err(InspectError::Refused {
            what: format!("{}: has no base", opened.session().path().display()),
            advice: ApplyAdvice::NameTarget,
        }),
    }
}
