//! The steps that make one tree of the other, and their order.
//!
//! First everything that leaves its place is taken away, the deepest first, so that every path
//! is as the base has it; then everything is put where it belongs, directories before what is in
//! them; then directories get their attributes, the deepest first, for what is put into one
//! moves its times.

use std::collections::BTreeSet;

use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::hunks::ChosenPart;
use crate::overlay::PathRows;
use crate::vfs::{FileId, Time};
use crate::writeback::{Attrs, SeenObject, StagingDir, StagingSlot};

/// What is taken from where the base has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Take {
    /// Where it goes.
    pub slot: StagingSlot,
    /// Where it is.
    pub from: BasePath,
    /// Only one more name of it is taken.
    pub stays: bool,
    /// What was seen there.
    pub seen: SeenObject,
    /// The change that it is a part of.
    pub change: usize,
}

/// What is put to where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PutStep {
    /// Where it comes from.
    pub slot: StagingSlot,
    /// Whether it was made, or taken.
    pub shelf: StagingDir,
    /// Where it goes.
    pub to: BasePath,
    /// The file that it takes the place of.
    pub over: Option<SeenObject>,
    /// The change that it is a part of.
    pub change: usize,
}

/// What gets attributes where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// Where it is in the end.
    pub path: BasePath,
    /// What it gets.
    pub attrs: Attrs,
    /// What was seen of it, if it is a file.
    pub seen: Option<SeenObject>,
    /// The change that it is a part of; none where only what is in it changed.
    pub change: Option<usize>,
}

/// All steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub takes: Vec<Take>,
    pub puts: Vec<PutStep>,
    pub sets: Vec<Set>,
}

/// A change that is applied, for the session, which forgets it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedChange {
    /// Where it is in the merged tree, or would be if it was not gone.
    pub path: MergedPath,
    /// Where it was before, if it moved.
    pub from: Option<MergedPath>,
    /// What the session has there, as it was applied: its number, and when it last changed. If
    /// that is no longer so, it must not be forgotten. `None` if it is gone.
    pub object: Option<(FileId, Time)>,
    /// What the session's rows said of the path when the plan was made; `None` in a journal of an
    /// older version, which does not say.
    pub planned: Option<PathRows>,
    /// The ctime with which it was left in the base; `None` before it is applied.
    pub base_ctime: Option<Time>,
    /// Nothing below it that the session changed was left out: whatever the session knows of
    /// what is below may go with it.
    pub is_whole: bool,
    /// Only this part of a file is applied: the session keeps the rest.
    pub part: Option<ChosenPart>,
    /// How many paths it stands for, as `diff` counts them: of a directory that is gone, with all
    /// that was in it; none where only a directory's time differs, which follows what is in it.
    pub paths: u64,
}

impl AppliedChange {
    /// Whether the session had an entry at its path when the plan was made.
    pub fn was_entry(&self) -> bool {
        self.planned.is_some_and(|planned| planned.entry.is_some())
    }

    /// How many paths these changes stand for; directories of which only the time differs count
    /// where there is nothing else.
    pub fn count_paths<'c>(changes: impl Iterator<Item = &'c Self>) -> u64 {
        let (mut paths, mut times) = (0, 0);
        for change in changes {
            paths += change.paths;
            times += u64::from(change.paths == 0);
        }
        if paths == 0 { times } else { paths }
    }

    /// The requests, of at most `most` changes each, that let the session forget changes.
    pub fn in_requests(mut applied: Vec<&Self>, most: usize) -> Vec<Vec<&Self>> {
        // What moved comes first, with the directories above it: the base has all of it at its new
        // place already, and the session finds what is at the old one, or in it, only after that.
        let mut first = BTreeSet::new();
        for moved in applied.iter().filter(|applied| applied.from.is_some()) {
            let mut path = moved.path.clone();
            while first.insert(path.clone()) {
                path = path.parent();
            }
        }
        // A directory before what is in it.
        applied.sort_by(|a, b| a.path.cmp(&b.path));
        applied.sort_by_key(|applied| !first.contains(&applied.path));
        let mut requests: Vec<_> = applied.chunks(most).map(<[_]>::to_vec).collect();
        for request in &mut requests {
            request.sort_by(|a, b| a.path.cmp(&b.path));
        }
        requests
    }
}

impl Steps {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.takes.len() + self.puts.len() + self.sets.len()
    }

    /// Puts them into their order.
    pub(super) fn sort(&mut self) {
        // Further names before anything moves; their files' ctimes move with that.
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
