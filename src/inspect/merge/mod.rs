//! Merges what a fork changed into the session that it was forked from.
//!
//! Both sides are compared with the tree of the fork point. An object that was there then is the
//! same one on both sides, under whatever name, so moves are followed. What one side changed is
//! taken from that side; what both changed alike is left; text that both changed is merged. The
//! rest are conflicts, and then nothing changes.

mod content;
mod decide;
mod side;
mod steps;

use std::collections::BTreeSet;
use std::path::Path;

use super::between::Moments;
use super::diff::{DiffOptions, DifferenceKind};
use super::error::{InspectError, Result};
use super::logged_changes::last_change;
use super::opened::OpenSession;
use crate::delta::{Checkpoint, CheckpointId, MergedPath, StoreError};
use crate::overlay::ChangeStep;
use crate::vfs::FileKind;
use decide::{Addition, Decisions, NewContent};
use side::{Side, old_path};

/// The id of a fork's first checkpoint, at its beginning.
const FIRST: CheckpointId = CheckpointId(1);

/// A side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeSide {
    /// The session.
    Ours,
    /// The fork.
    Theirs,
}

/// A user's choice for the conflicts at and below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeChoice {
    /// The side to take. With [`MergeSide::Ours`], nothing of the fork is taken there.
    pub side: MergeSide,
    /// The path, in the session or in the fork.
    pub path: MergedPath,
}

/// What both sides changed, and what cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    /// The path, in the session or, where it has none, in the fork.
    pub path: MergedPath,
    /// What the session did.
    pub ours: String,
    /// What the fork did.
    pub theirs: String,
}

/// A change that a merge makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeChange {
    /// Its kind, in the session.
    pub kind: DifferenceKind,
    /// The path in the fork; of a removed object, the one at the fork point.
    pub path: MergedPath,
    /// The path at the fork point, of a moved object.
    pub from: Option<MergedPath>,
    /// The path in the session, of a moved object that the session moved too.
    pub here: Option<MergedPath>,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Whether the texts of both sides are merged.
    pub is_merged: bool,
}

/// What a merge would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergePlan {
    /// The changes, sorted by path.
    pub changes: Vec<MergeChange>,
    /// The conflicts, sorted by path.
    pub conflicts: Vec<MergeConflict>,
    /// Choices that no conflict and no change of the fork needed.
    pub unused: Vec<MergedPath>,
    /// What the base denies access to.
    pub denied: Vec<MergedPath>,
    /// The last row of the session's audit log that the plan has seen.
    pub seen: i64,
}

/// The checkpoints at which a fork began: the one of the session, and the one of the fork.
///
/// # Errors
/// The second session is no fork of the first, one of the checkpoints was removed, or a session
/// cannot be read.
pub fn fork_points(ours: &OpenSession, theirs: &OpenSession) -> Result<(Checkpoint, Checkpoint)> {
    let (here, fork) = (ours.session(), theirs.session());
    let path = fork.path().display();
    let invalid = |what: String| Err(InspectError::Invalid { what });
    let removed = |what: String| Err(InspectError::ForkPointRemoved { what });
    let origin = fork.fork_origin().map_err(|source| failed(theirs, source))?;
    let Some(origin) = origin else {
        return invalid(format!("{path}: not a fork of a session"));
    };
    if origin.session != here.id() {
        let session = here.path().display();
        return invalid(format!("{path}: a fork of another session than {session}"));
    }
    let point = here.checkpoint(origin.checkpoint).map_err(|source| failed(ours, source))?;
    let Some(point) = point else {
        let id = origin.checkpoint;
        return removed(format!(
            "checkpoint {id}, at which the fork began, was removed: what changed since is not known"
        ));
    };
    let first = fork.checkpoint(FIRST).map_err(|source| failed(theirs, source))?;
    match first {
        Some(first) => Ok((point, first)),
        None => removed(format!(
            "{path}: its first checkpoint was removed: what changed in the fork is not known"
        )),
    }
}

/// The only side whose checkpoint of the fork point is complete. The tree was the same on both
/// sides then, so both are compared with that checkpoint.
fn knows_fork_point(point: &Checkpoint, first: &Checkpoint) -> Option<MergeSide> {
    match (point.incomplete, first.incomplete) {
        (None, Some(_)) => Some(MergeSide::Ours),
        (Some(_), None) => Some(MergeSide::Theirs),
        (None, None) | (Some(_), Some(_)) => None,
    }
}

fn failed(opened: &OpenSession, source: StoreError) -> InspectError {
    InspectError::Store { session: opened.session().path().to_owned(), source }
}

/// Plans the merge of a fork, and calls `each` for each step that makes it, unless there are
/// conflicts. The steps are of the moment of the plan: they are to be taken in one change, if
/// nothing changed after [`MergePlan::seen`].
///
/// # Errors
/// A session or the base cannot be read, or an error of `each`.
pub fn plan_merge(
    (ours, theirs): (&OpenSession, &OpenSession),
    base: Option<&Path>,
    (point, first): (&Checkpoint, &Checkpoint),
    takes: &[MergeChoice],
    each: &mut dyn FnMut(ChangeStep) -> Result<()>,
) -> Result<MergePlan> {
    // Before the comparison: a later change is noticed then.
    let seen = last_change(ours.session())?;
    let of_session = (ours, point);
    let of_fork = (theirs, first);
    let (our_point, their_point) = match knows_fork_point(point, first) {
        Some(MergeSide::Ours) => (of_session, of_session),
        Some(MergeSide::Theirs) => (of_fork, of_fork),
        None => (of_session, of_fork),
    };
    let past = |(side, at): (&OpenSession, &Checkpoint)| {
        OpenSession::open_at(side.session().path(), base, at)
    };
    let our_past = past(our_point)?;
    let their_past = past(their_point)?;
    let options = DiffOptions { times: true, ..DiffOptions::default() };
    let here = Moments { old: &our_past, new: ours, from: our_point.1, until: None };
    let there = Moments { old: &their_past, new: theirs, from: their_point.1, until: None };
    // What is the session's by choice is not read, as it may not be readable.
    let reads = |old: &MergedPath, new: &MergedPath| {
        !matches!(decide::choice(takes, &[old, new]), Some((_, MergeSide::Ours)))
    };
    here.with_differences(&options, &reads, |our_views, our_found| {
        there.with_differences(&options, &reads, |their_views, their_found| {
            let mut denied = our_found.denied.clone();
            denied.extend(their_found.denied.iter().cloned());
            let (ours, theirs) = Side::both((our_views, our_found), (their_views, their_found))?;
            let decided = decide::decide(&ours, &theirs, takes)?;
            let changes = changes((&ours, &theirs), &decided)?;
            if decided.conflicts.is_empty() && !changes.is_empty() {
                steps::steps((&ours, &theirs), &decided, each)?;
            }
            let Decisions { conflicts, unused, .. } = decided;
            Ok(MergePlan { changes, conflicts, unused, denied, seen })
        })
    })
}

/// The changes, for a person.
fn changes(
    (ours, theirs): (&Side<'_>, &Side<'_>),
    decided: &Decisions,
) -> Result<Vec<MergeChange>> {
    let mut changes = Vec::new();
    for difference in &theirs.differences {
        let old = old_path(difference);
        let object = difference.change.after.as_ref().map(|after| after.attr().kind);
        let before = difference.old.as_ref().map(|old| old.attr.kind);
        let is_dir = object.or(before) == Some(FileKind::Directory);
        let mut change = MergeChange {
            kind: difference.kind,
            path: difference.path.clone(),
            from: None,
            here: None,
            is_dir,
            is_merged: false,
        };
        let edit = old.as_ref().and_then(|old| decided.edits.get(old));
        change.is_merged = edit.is_some_and(|edit| edit.content == Some(NewContent::Both));
        let is_moved = old.as_ref().is_some_and(|old| decided.moved.contains_key(old));
        let is_removed = old.as_ref().is_some_and(|old| decided.removed.contains(old));
        let addition = decided.added.get(&difference.path);
        change.kind = match (is_moved, is_removed, addition, edit) {
            (true, ..) => DifferenceKind::Renamed,
            (_, true, Some(_), _) => difference.kind,
            (_, true, ..) => DifferenceKind::Deleted,
            (_, _, Some(_), _) if ours.find(&change.path)?.is_some() => DifferenceKind::Modified,
            (_, _, Some(_), _) => DifferenceKind::Added,
            (.., Some(_)) => DifferenceKind::Modified,
            _ => continue,
        };
        change.from = old.filter(|_| is_moved);
        change.here = change.from.as_ref().and_then(|from| ours.moved_to(from));
        changes.push(change);
    }
    let listed: BTreeSet<_> = changes.iter().map(|change| change.path.clone()).collect();
    // Directories that come back for what the fork has in them.
    for (path, addition) in decided.added.iter().filter(|(path, _)| !listed.contains(path)) {
        let is_dir = matches!(addition, Addition::Object(object)
            if object.attr().kind == FileKind::Directory);
        let (kind, path) = (DifferenceKind::Added, path.clone());
        changes.push(MergeChange { kind, path, from: None, here: None, is_dir, is_merged: false });
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

impl MergeSide {
    /// The side with this name on the command line.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"ours" => Some(Self::Ours),
            b"theirs" => Some(Self::Theirs),
            _ => None,
        }
    }
}
