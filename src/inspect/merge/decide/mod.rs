//! Decides, object by object, what a merge takes from the fork, and what is a conflict.

mod additions;
mod changes;
mod directories;
mod places;

use std::collections::{BTreeMap, BTreeSet};

use super::side::{ObjectId, Side, is_new};
use super::{MergeChoice, MergeConflict, MergeSide};
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::overlay::TreeObject;
use crate::vfs::SetAttr;

/// What a merge changes in the session.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Objects to remove, with everything in them, by their paths at the fork point.
    pub removed: BTreeSet<MergedPath>,
    /// Objects of the session that give place to one of the fork, by their paths now.
    pub replaced: BTreeSet<MergedPath>,
    /// Objects to move: the path at the fork point, and the one in the fork.
    pub moved: BTreeMap<MergedPath, MergedPath>,
    /// Objects to change, by their paths at the fork point.
    pub edits: BTreeMap<MergedPath, ObjectEdit>,
    /// Objects to make, by their paths in the fork.
    pub added: BTreeMap<MergedPath, Addition>,
    /// Directories that both sides made: the path in the fork, and the one in the session.
    pub joined: BTreeMap<MergedPath, MergedPath>,
    pub conflicts: Vec<MergeConflict>,
    /// Choices at which the fork changed nothing.
    pub unused: Vec<MergedPath>,
}

/// What changes of an object.
#[derive(Debug)]
pub(super) struct ObjectEdit {
    /// The object in the fork.
    pub theirs: TreeObject,
    pub content: Option<NewContent>,
    pub set: SetAttr,
}

/// Where changed content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewContent {
    /// The fork.
    Theirs,
    /// Both sides: the text is merged.
    Both,
}

/// How an object is made.
#[derive(Debug, Clone)]
pub(super) enum Addition {
    /// As a new object like the one of the fork.
    Object(Box<TreeObject>),
    /// As a hard link.
    Link(ObjectId),
}

/// Compares both sides.
///
/// # Errors
/// A side cannot be read.
pub(super) fn decide(
    ours: &Side<'_>,
    theirs: &Side<'_>,
    takes: &[MergeChoice],
) -> Result<Decisions> {
    let mut decider = Decider {
        ours,
        theirs,
        takes,
        used: BTreeSet::new(),
        kept: BTreeSet::new(),
        unchecked: Vec::new(),
        made: Decisions::default(),
    };
    for difference in &theirs.differences {
        decider.old_object(difference)?;
    }
    decider.keep_our_additions();
    decider.check_moves()?;
    for difference in theirs.differences.iter().filter(|difference| is_new(difference)) {
        decider.addition(difference)?;
    }
    // A choice may have added moves.
    decider.check_moves()?;
    decider.finish()
}

/// The choice of a user that counts for an object with these paths, by its place in the list: the
/// one for the path itself, or for the closest directory above.
pub(super) fn choice(takes: &[MergeChoice], paths: &[&MergedPath]) -> Option<(usize, MergeSide)> {
    let chosen = takes.iter().enumerate();
    let chosen = chosen.filter(|(_, take)| paths.iter().any(|path| path.is_within(&take.path)));
    let (at, take) = chosen.max_by_key(|(_, take)| take.path.as_bytes().len())?;
    Some((at, take.side))
}

/// Decides, one difference after the other.
struct Decider<'a> {
    ours: &'a Side<'a>,
    theirs: &'a Side<'a>,
    takes: &'a [MergeChoice],
    /// The choices that decided anything.
    used: BTreeSet<usize>,
    /// Objects of the fork point that stay, though the fork removed them or what they are in.
    kept: BTreeSet<MergedPath>,
    /// Moves whose targets were not looked at.
    unchecked: Vec<(MergedPath, MergedPath)>,
    made: Decisions,
}

impl Decider<'_> {
    /// The side that the user took for a path.
    fn taken(&mut self, paths: &[&MergedPath]) -> Option<MergeSide> {
        let (at, side) = choice(self.takes, paths)?;
        self.used.insert(at);
        Some(side)
    }

    /// Whether the user wants the fork's side in a conflict; without a choice, notes it.
    fn takes_theirs(
        &mut self,
        (path, old): (&MergedPath, Option<&MergedPath>),
        (ours, theirs): (String, String),
    ) -> bool {
        let paths: Vec<_> = [path].into_iter().chain(old).collect();
        match self.taken(&paths) {
            Some(side) => side == MergeSide::Theirs,
            None => {
                let path = path.clone();
                self.made.conflicts.push(MergeConflict { path, ours, theirs });
                false
            }
        }
    }

    fn finish(mut self) -> Result<Decisions> {
        let takes = self.takes.iter().enumerate();
        let unused = takes.filter(|(at, _)| !self.used.contains(at));
        self.made.unused = unused.map(|(_, take)| take.path.clone()).collect();
        self.made.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self.made)
    }
}
