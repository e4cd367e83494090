//! What is to be done.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Skipped;
use super::drift::Drifted;
use super::last_apply::LastApply;
use super::merge::StepContent;
use super::steps::{AppliedChange, Steps};
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
use crate::writeback::{Attrs, StagingSlot};

/// What is applied.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Only what is at, below, or came from what is chosen. What has to go together goes whole,
    /// or stays.
    pub selection: Selection,
    /// Of that only these changes, or these hunks of them.
    pub chosen: Option<Arc<ChosenHunks>>,
    /// Also what clients leave behind for themselves.
    pub client_temp_files: bool,
    /// Also over what is not any more as the session saw it.
    pub force: bool,
    /// Leave out what is not any more as the session saw it and cannot be merged.
    pub skip_drifted: bool,
    /// Merge text with conflict markers, as git does, where lines conflict.
    pub conflict_markers: bool,
    /// Overwrite what drifted at and below these paths.
    pub take_session: Vec<MergedPath>,
    /// Leave out what drifted at and below these paths.
    pub take_base: Vec<MergedPath>,
    /// Also set-user-ID and set-group-ID files, and device nodes.
    pub special: bool,
    /// Keep what is replaced and removed, up to so many bytes on disk, so that it can be put back;
    /// `None` keeps nothing, also of an earlier apply.
    pub keep: Option<u64>,
}

/// What would be done.
#[derive(Debug, Default)]
pub struct ApplyPlan {
    /// What the session made different; nothing is to be done where there is nothing.
    pub changes: Vec<AppliedChange>,
    /// What is not any more as the session saw it, sorted by path.
    pub drifted: Vec<Drifted>,
    /// Files that the session and the base changed, merged.
    pub merged: Vec<Merged>,
    /// Copies that the session drops when the rest is applied, because it changed nothing of them.
    pub unchanged: Vec<DroppedCopy>,
    /// What is left out, and why: the options or the paths do not ask for it.
    pub left_out: Vec<Skipped>,
    /// The directories among that of which something is not chosen: they go whole, or stay.
    pub split: Vec<MergedPath>,
    /// What is made set-user-ID or set-group-ID, or is a device node.
    pub special: Vec<Special>,
    /// What the host's files have, and their replacements will not.
    pub losses: Vec<Loss>,
    /// Sizes of the files that are written, in bytes.
    pub bytes: u64,
    /// How much of that is data, in bytes: the rest are holes.
    pub data_bytes: u64,
    /// How many files, links and other objects are written.
    pub files: u64,
    /// How many things are removed, each with all that is in it.
    pub deletions: u64,
    /// How many of these are directories.
    pub deleted_dirs: u64,
    /// What stays as it is but for attributes.
    pub attributes: AttributeCounts,
    /// What is replaced and removed, in bytes on disk, where that is kept.
    pub kept_bytes: u64,
    /// The last apply, if that was to another directory: what is kept of it goes.
    pub ends_undo_of: Option<LastApply>,
    /// Changes that are left out though they have steps: number and reason.
    pub(super) refused: Vec<(usize, Skipped)>,
    /// What is left out because a client changed it after the plan was shown.
    pub(super) changed: Vec<Skipped>,
    /// The fingerprints of its changes.
    pub(super) fingerprints: HashSet<u64>,
    /// What drifted and is left out, to keep what the base has, with the change that it is of.
    pub(super) kept_in_base: BTreeMap<MergedPath, KeptInBase>,
    /// The changes that are left out with that, and what is in directories among them.
    pub(super) left_to_base: BTreeSet<MergedPath>,
    pub(super) steps: Steps,
    pub(super) makes: Vec<Make>,
    /// What the top gets when all is done.
    pub(super) top: Option<Attrs>,
}

/// How much a change is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChangeSize {
    pub bytes: u64,
    pub data_bytes: u64,
    pub files: u64,
    pub deletions: u64,
    pub deleted_dirs: u64,
    pub attributes: AttributeCounts,
}

/// How many objects get attributes and nothing else, each counted once.
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
    /// Counts a file that has these attributes and gets others.
    pub(super) fn add_file(&mut self, old: &BaseAttr, new: &Attrs) {
        let count = if old.mode != new.mode {
            &mut self.modes
        } else if (old.uid, old.gid) != (new.uid, new.gid) {
            &mut self.owners
        } else {
            &mut self.times
        };
        *count += 1;
    }
}

impl ApplyPlan {
    /// Adds up how much its changes are.
    pub(super) fn count<'c>(&mut self, counts: impl Iterator<Item = &'c ChangeSize>) {
        for counts in counts {
            self.bytes = self.bytes.saturating_add(counts.bytes);
            self.data_bytes = self.data_bytes.saturating_add(counts.data_bytes);
            self.files += counts.files;
            self.deletions += counts.deletions;
            self.deleted_dirs += counts.deleted_dirs;
            self.attributes.modes += counts.attributes.modes;
            self.attributes.owners += counts.attributes.owners;
            self.attributes.times += counts.attributes.times;
            self.attributes.dirs += counts.attributes.dirs;
        }
    }

    /// Whether what drifted is left out because an option names it ([`ApplyOptions::take_base`]).
    pub fn is_taken_from_base(&self, drifted: &Drifted) -> bool {
        self.kept_in_base.contains_key(&drifted.path)
    }

    /// Whether what is at a path drifted.
    pub fn has_drifted(&self, path: &MergedPath) -> bool {
        self.drifted.binary_search_by(|drifted| drifted.path.cmp(path)).is_ok()
    }

    /// Whether nothing of it is written: each change is left out.
    pub(super) fn writes_nothing(&self) -> bool {
        self.refused.len() == self.changes.len()
    }

    /// What is left out before it has steps.
    pub(super) fn left_out_without_steps(&self) -> Vec<Skipped> {
        let refused: HashSet<_> = self.refused.iter().map(|(_, refused)| &refused.path).collect();
        self.left_out.iter().filter(|left| !refused.contains(&left.path)).cloned().collect()
    }

    /// How many changes are left out, but for those that an option leaves to the base.
    pub fn left_out_unasked(&self) -> usize {
        self.left_out.iter().filter(|left| !self.left_to_base.contains(&left.path)).count()
    }

    /// The paths of what an option leaves to the base ([`ApplyOptions::take_base`]): changes, and
    /// all changes in a directory among them.
    pub fn left_to_base(&self) -> &BTreeSet<MergedPath> {
        &self.left_to_base
    }

    /// The changes that are left out for that reason.
    pub fn kept_in_base(&self) -> impl Iterator<Item = &KeptInBase> {
        self.kept_in_base.values()
    }
}

/// A change that is left out because an option leaves it to the base.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptInBase {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// It is the mode or owner of a directory that both sides have, and not what is in it.
    pub is_attributes: bool,
}

/// A file that gets something of the base's later state too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// The text has conflict markers.
    pub has_conflicts: bool,
}

/// Something that gives rights away to those who run it, or to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Special {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// What it is.
    pub what: &'static str,
}

/// Attributes of a host's object that its replacement does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// The names of the attributes.
    pub names: Vec<String>,
    /// Why.
    pub why: &'static str,
}

/// What is made before it is placed.
#[derive(Debug, Clone)]
pub(super) struct Make {
    pub slot: StagingSlot,
    pub path: MergedPath,
    /// It is one more name of what was made for this slot.
    pub link: Option<StagingSlot>,
    /// The change that it is a part of.
    pub change: usize,
    /// What it replaces in the target, whose extended attributes it gets.
    pub replaces: Option<BasePath>,
    /// Where its content comes from.
    pub content: StepContent,
    /// Its attributes.
    pub attrs: Attrs,
}

/// A hash of a change, to tell whether it is the same in a later plan: its path, where it came
/// from, and the object with its ctime; of a directory, whose times follow its entries, the mode
/// and owner instead. What the base has is not in it: see [`Drifted`].
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
            hint: "name the directory to write to with --to DIR",
        }),
    }
}
