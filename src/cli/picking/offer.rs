//! The changes that a user can choose from.

use std::collections::BTreeSet;

use crate::cli::error::CliError;
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind};
use crate::inspect::fold::{FoldOptions, FoldedLine, Reason, entries};
use crate::inspect::hunks::{ChosenHunks, Pick};
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::inspect::tool_owned::OwnedBy;
use crate::vfs::FileKind;

use super::Verb;

/// The mark of a change that conflicts with the current base.
pub(super) const CONFLICTS_WITH_BASE: &str = " (conflicts with the base)";

/// The offered changes.
pub(in crate::cli) struct Offer<'a> {
    pub(in crate::cli) opened: &'a OpenSession,
    /// The changes to choose from.
    pub(in crate::cli) differences: Vec<Difference>,
    /// Directories with only a new mtime: they are chosen together with their entries.
    pub(in crate::cli) time_only_dirs: Vec<Difference>,
    /// The paths of changes that conflict with the current state of the target.
    pub(in crate::cli) drifted: BTreeSet<MergedPath>,
    /// The paths of further changes, which the base has already: they are not offered.
    pub(in crate::cli) in_base: BTreeSet<MergedPath>,
    /// Whether the target is a copy of the base.
    pub(in crate::cli) is_to_copy: bool,
    /// Whether files of git and context nodes are offered one by one.
    pub(in crate::cli) has_own: bool,
    pub(in crate::cli) verb: Verb,
    /// The part of the tree to which the offer is limited.
    pub(in crate::cli) selection: &'a Selection,
}

impl Offer<'_> {
    /// The changes, folded as by `diff`.
    pub(super) fn entries(&self) -> Result<Vec<FoldedLine>, CliError> {
        let folding = FoldOptions { dirs: true, own: !self.has_own };
        let differences = self.differences.clone();
        Ok(entries(self.opened, &DiffOptions::default(), folding, differences)?)
    }

    /// The mark of a change that conflicts with the target; otherwise empty.
    pub(super) fn mark(&self, conflicts: bool) -> &'static str {
        match (conflicts, self.is_to_copy) {
            (false, _) => "",
            (true, false) => CONFLICTS_WITH_BASE,
            (true, true) => " (conflicts with the copy)",
        }
    }

    /// Whether any difference of an entry conflicts with the target.
    pub(super) fn has_conflicts(&self, entry: &FoldedLine) -> bool {
        // A deleted directory also stands for everything in it.
        let has_below = |difference: &Difference| {
            let is_gone = difference.kind == DifferenceKind::Deleted;
            is_gone && difference.path.first_below(&self.drifted).is_some()
        };
        let has = |d: &Difference| self.drifted.contains(&d.path) || has_below(d);
        differences(entry).iter().any(has)
    }

    /// Adds directories with only a new mtime if all changes in them are chosen, or if the rename
    /// of a parent is chosen.
    pub(super) fn add_quiet(&self, chosen: &mut ChosenHunks) {
        let is_whole = |d: &&Difference| chosen.get(&d.change.path) == Some(&Pick::Whole);
        let (picked, rest): (Vec<_>, Vec<_>) = self.differences.iter().partition(is_whole);
        let has = |some: &[&Difference], dir: &MergedPath| {
            some.iter().any(|difference| difference.change.path.is_within(dir))
        };
        let moves = |dir: &MergedPath| picked.iter().any(|d| dir.is_within(&d.change.path));
        let dirs = self.time_only_dirs.iter().map(|dir| &dir.change.path);
        let is_picked = |dir: &&MergedPath| (has(&picked, dir) || moves(dir)) && !has(&rest, dir);
        let dirs: Vec<_> = dirs.filter(is_picked).collect();
        chosen.extend(dirs.into_iter().map(|dir| (dir.clone(), Pick::Whole)));
    }
}

/// The differences of an entry.
pub(super) fn differences(entry: &FoldedLine) -> &[Difference] {
    match entry {
        FoldedLine::One(difference) => std::slice::from_ref(difference),
        FoldedLine::Folded(folded) => &folded.differences,
    }
}

/// Chooses all differences of an entry.
pub(super) fn choose(entry: &FoldedLine, chosen: &mut ChosenHunks) {
    let paths = differences(entry).iter().map(|difference| &difference.change.path);
    chosen.extend(paths.map(|path| (path.clone(), Pick::Whole)));
}

/// The directory that an entry renames, if any.
pub(super) fn moved_dir(entry: &FoldedLine) -> Option<&MergedPath> {
    let FoldedLine::One(difference) = entry else { return None };
    let change = &difference.change;
    let is_dir = |d: &Difference| {
        d.change.after.as_ref().is_some_and(|after| after.attr().kind == FileKind::Directory)
    };
    let is_moved = difference.kind == DifferenceKind::Renamed
        && !change.moved_with_parent
        && is_dir(difference);
    is_moved.then_some(&change.path)
}

/// The noun for an entry in a question.
pub(super) fn noun(entry: &FoldedLine) -> &'static str {
    match entry {
        FoldedLine::One(difference) => match difference.kind {
            DifferenceKind::Added => "addition",
            DifferenceKind::Deleted => "deletion",
            DifferenceKind::Renamed => "rename",
            DifferenceKind::Retyped => "change of type",
            DifferenceKind::Modified if difference.differs.content => "change",
            DifferenceKind::Modified if difference.differs.mode => "mode change",
            DifferenceKind::Modified if difference.differs.owner => "change of owner",
            DifferenceKind::Modified => "change of time",
        },
        FoldedLine::Folded(folded) => match folded.reason {
            Reason::Added => "new directory",
            Reason::Deleted => "deletion",
            Reason::Own(OwnedBy::Git) => "change of git's own files",
            Reason::Own(OwnedBy::Nodes) => "change of context nodes",
        },
    }
}
