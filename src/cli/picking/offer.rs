//! What there is to choose from.

use std::collections::BTreeSet;

use crate::cli::error::CliError;
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind};
use crate::inspect::fold::{FoldOptions, FoldedLine, Reason, entries};
use crate::inspect::hunks::{ChosenHunks, Pick};
use crate::inspect::opened::Opened;
use crate::inspect::own::OwnedBy;
use crate::vfs::FileKind;

use super::Verb;

/// What stands behind what cannot be merged with what the base has now.
pub(super) const CONFLICTS_WITH_BASE: &str = " (conflicts with the base)";

/// The changes that are offered.
pub(in crate::cli) struct Offer<'a> {
    pub(in crate::cli) opened: &'a Opened,
    /// What is chosen from.
    pub(in crate::cli) differences: Vec<Difference>,
    /// Directories of which only the time changed: they go with what is in them.
    pub(in crate::cli) quiet: Vec<Difference>,
    /// The paths of what cannot be merged with what is there now.
    pub(in crate::cli) drifted: BTreeSet<MergedPath>,
    /// What is written to is a copy of the base.
    pub(in crate::cli) is_to_copy: bool,
    /// Whether git's own files and context nodes are offered one by one.
    pub(in crate::cli) has_own: bool,
    pub(in crate::cli) verb: Verb,
}

impl Offer<'_> {
    /// What is chosen from, folded as `diff` does it.
    pub(super) fn entries(&self) -> Result<Vec<FoldedLine>, CliError> {
        let folding = FoldOptions { dirs: true, own: !self.has_own };
        let differences = self.differences.clone();
        Ok(entries(self.opened, &DiffOptions::default(), folding, differences)?)
    }

    /// What stands behind what conflicts with what is there now, or nothing.
    pub(super) fn mark(&self, conflicts: bool) -> &'static str {
        match (conflicts, self.is_to_copy) {
            (false, _) => "",
            (true, false) => CONFLICTS_WITH_BASE,
            (true, true) => " (conflicts with the copy)",
        }
    }

    /// Whether an entry has something that cannot be merged with what is there now.
    pub(super) fn has_conflicts(&self, entry: &FoldedLine) -> bool {
        // A directory that is deleted goes with what is in it.
        let has_below = |difference: &Difference| {
            let is_gone = difference.kind == DifferenceKind::Deleted;
            is_gone && difference.path.first_below(&self.drifted).is_some()
        };
        let has = |d: &Difference| self.drifted.contains(&d.path) || has_below(d);
        differences(entry).iter().any(has)
    }

    /// Adds the directories of which only the time changed, if all that changed in them, or the
    /// move of a directory above them, is chosen.
    pub(super) fn add_quiet(&self, chosen: &mut ChosenHunks) {
        let is_whole = |d: &&Difference| chosen.get(&d.change.path) == Some(&Pick::Whole);
        let (picked, rest): (Vec<_>, Vec<_>) = self.differences.iter().partition(is_whole);
        let has = |some: &[&Difference], dir: &MergedPath| {
            some.iter().any(|difference| difference.change.path.is_within(dir))
        };
        let moves = |dir: &MergedPath| picked.iter().any(|d| dir.is_within(&d.change.path));
        let dirs = self.quiet.iter().map(|dir| &dir.change.path);
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

/// Chooses all of an entry.
pub(super) fn choose(entry: &FoldedLine, chosen: &mut ChosenHunks) {
    let paths = differences(entry).iter().map(|difference| &difference.change.path);
    chosen.extend(paths.map(|path| (path.clone(), Pick::Whole)));
}

/// The directory that an entry moves.
pub(super) fn moved_dir(entry: &FoldedLine) -> Option<&MergedPath> {
    let FoldedLine::One(difference) = entry else { return None };
    let change = &difference.change;
    let is_dir = |d: &Difference| {
        d.change.after.as_ref().is_some_and(|after| after.attr().kind == FileKind::Directory)
    };
    let is_moved =
        difference.kind == DifferenceKind::Renamed && !change.is_carried && is_dir(difference);
    is_moved.then_some(&change.path)
}

/// What an entry is, in a question.
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
