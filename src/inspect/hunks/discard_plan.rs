//! Plans what discarding chosen pieces takes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::choice::{ChosenHunks, Pick};
use super::id::HunkId;
use super::pieces::{DiffPieces, FileHunks, pieces, whole_id};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind, diff_past_denied};
use crate::inspect::error::{InspectError, Result};
use crate::inspect::opened::OpenSession;
use crate::overlay::TreeView;
use crate::vfs::{FileId, FileKind, Time};

/// A change is left out because it is not as it was when it was chosen.
const CHANGED: &str = "a client changed it since";

/// An object is left out because its whole directory was deleted.
const GONE: &str = "is gone with its directory, and comes back only with that";

/// A directory is left out because it holds other changes.
const HOLDS_OTHERS: &str = "holds changes that are not chosen, and comes back only whole";

/// One step of a discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscardStep {
    /// Everything that the session has at and below a path; the base shows there again.
    Path(MergedPath),
    /// Hunks of a file.
    Hunks {
        /// The file.
        path: MergedPath,
        /// The number and ctime that the file must still have.
        object: (FileId, Time),
        /// The content without the hunks.
        content: Vec<u8>,
        /// The earlier mode, owner and group, if that piece is discarded.
        attributes: Option<[u32; 3]>,
        /// The number of discarded hunks, and of all hunks.
        hunks: (usize, usize),
    },
    /// A directory gets this mode, owner and group back.
    Attributes(MergedPath, [u32; 3]),
    /// The path is left out, for this reason.
    Nothing(MergedPath, &'static str),
}

/// Plans the steps that discard the chosen pieces. `seen` has, by the path of each change, its id
/// as a whole when it was chosen: a change with another id now is left out.
///
/// # Errors
/// The session or the base cannot be read.
pub fn without(
    opened: &OpenSession,
    (chosen, seen): (&ChosenHunks, &BTreeMap<MergedPath, HunkId>),
) -> Result<Vec<DiscardStep>> {
    let mut undoings = Vec::new();
    let (mut found, mut dirs, mut kept) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut gone = Vec::new();
    // All differences: what was not offered is not chosen either.
    let denied = diff_past_denied(opened, &DiffOptions::default(), &mut |view, difference| {
        let path = difference.change.path.clone();
        if difference.kind == DifferenceKind::Deleted {
            gone.push(path.clone());
        }
        let is_same = seen.get(&path) == Some(&whole_id(&difference));
        match chosen.get(&path) {
            None => kept.extend(ends(view, &difference)?),
            Some(Pick::Whole) if !is_same => kept.extend(ends(view, &difference)?),
            Some(Pick::Whole) => {
                found.insert(path.clone());
                match attributes_of_dir(&difference) {
                    Some(attributes) => undoings.push(DiscardStep::Attributes(path, attributes)),
                    None => dirs.push(ends(view, &difference)?),
                }
            }
            Some(Pick::Hunks(ids)) => {
                found.insert(path.clone());
                let undoing = of_file(opened, view, &difference, ids)?;
                match undoing {
                    DiscardStep::Path(_) => dirs.push(vec![path]),
                    undoing => {
                        kept.push(path);
                        undoings.push(undoing);
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    kept.extend(denied);
    for path in chosen.keys().filter(|path| !found.contains(*path)) {
        let is_in = |dir: &MergedPath| path != dir && path.is_within(dir);
        let why = if gone.iter().any(is_in) { GONE } else { CHANGED };
        undoings.push(DiscardStep::Nothing(path.clone(), why));
    }
    let mut paths = BTreeSet::new();
    for ends in dirs {
        let Some(path) = ends.first().cloned() else { continue };
        let holds = |kept: &MergedPath| ends.iter().any(|end| kept.is_within(end));
        match kept.iter().any(holds) {
            true => {
                undoings.push(DiscardStep::Nothing(path, HOLDS_OTHERS));
            }
            false => drop(paths.insert(path)),
        }
    }
    let is_outermost = |path: &&MergedPath| !path.above().any(|above| paths.contains(&above));
    undoings.extend(paths.iter().filter(is_outermost).cloned().map(DiscardStep::Path));
    Ok(undoings)
}

/// The path of a change, and of a move also that at which the base object would show again.
fn ends(view: &TreeView<'_>, difference: &Difference) -> Result<Vec<MergedPath>> {
    let change = &difference.change;
    if change.moved_with_parent {
        return Ok(vec![change.path.clone()]);
    }
    view.discard_ends(change).map_err(|source| InspectError::at(&change.path, source))
}

/// The earlier mode, owner and group of a directory in which nothing else changed.
fn attributes_of_dir(difference: &Difference) -> Option<[u32; 3]> {
    let after = difference.change.after.as_ref()?;
    let old = difference.old.as_ref()?;
    let stays =
        difference.kind == DifferenceKind::Modified && after.attr().kind == FileKind::Directory;
    stays.then_some([old.attr.mode, old.attr.uid, old.attr.gid])
}

fn of_file(
    opened: &OpenSession,
    view: &TreeView<'_>,
    difference: &Difference,
    ids: &BTreeSet<HunkId>,
) -> Result<DiscardStep> {
    let path = difference.change.path.clone();
    let (DiffPieces::File(file), Some(after)) =
        (pieces(opened, view, difference)?, &difference.change.after)
    else {
        return Ok(DiscardStep::Nothing(path, CHANGED));
    };
    let all: BTreeSet<_> = file.ids().collect();
    if ids.is_empty() || !ids.is_subset(&all) {
        return Ok(DiscardStep::Nothing(path, CHANGED));
    }
    if *ids == all {
        return Ok(DiscardStep::Path(path));
    }
    let FileHunks { text, attributes } = *file;
    let attr = after.attr();
    Ok(DiscardStep::Hunks {
        path,
        object: (attr.fileid, attr.ctime),
        content: text.with(&all.difference(ids).copied().collect()),
        attributes: attributes.filter(|a| ids.contains(&a.id)).map(|a| a.old),
        hunks: (ids.len(), all.len()),
    })
}
