//! What it takes that a session gives up the pieces of its changes that were chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::choice::{ChosenHunks, Pick};
use super::id::HunkId;
use super::pieces::{DiffPieces, FileHunks, pieces, whole_id};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind, diff};
use crate::inspect::error::Result;
use crate::inspect::opened::Opened;
use crate::overlay::TreeView;
use crate::vfs::{FileId, FileKind, Time};

/// Why a change is left out that is not as it was when it was chosen.
const CHANGED: &str = "a client changed it meanwhile";

/// Why something is left out that is gone with a directory of which it is a part.
const GONE: &str = "is gone with its directory, and comes back only with that";

/// Why a directory is left out.
const HOLDS_OTHERS: &str = "holds changes that are not chosen, and comes back only whole";

/// Something that the session gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undoing {
    /// All that it has at and below a path: the base shows there again.
    Path(MergedPath),
    /// Hunks of a file.
    Hunks {
        /// The file.
        path: MergedPath,
        /// Its number and its ctime.
        object: (FileId, Time),
        /// What is left of it.
        content: Vec<u8>,
        /// The mode, owner and group that it gets back.
        attributes: Option<[u32; 3]>,
        /// How many hunks are given up, and how many there are.
        hunks: (usize, usize),
    },
    /// The mode, owner and group of a directory: it gets these.
    Attributes(MergedPath, [u32; 3]),
    /// Nothing at a path, and why.
    Nothing(MergedPath, &'static str),
}

/// What is to be done so that the session gives up what was chosen of its changes. Each of `seen`,
/// by the path of the change, is the id that the change had as a whole when it was chosen: what is
/// not the same any more stays.
///
/// # Errors
/// The session or the base cannot be read.
pub fn without(
    opened: &Opened,
    (chosen, seen): (&ChosenHunks, &BTreeMap<MergedPath, HunkId>),
) -> Result<Vec<Undoing>> {
    let mut undoings = Vec::new();
    let (mut found, mut dirs, mut kept) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut gone = Vec::new();
    // Of all: what was not offered is not chosen either.
    diff(opened, &DiffOptions::default(), &mut |view, difference| {
        let path = difference.change.path.clone();
        if difference.kind == DifferenceKind::Deleted {
            gone.push(path.clone());
        }
        let is_same = seen.get(&path) == Some(&whole_id(&difference));
        match chosen.get(&path) {
            None => kept.extend(ends(&difference)),
            Some(Pick::Whole) if !is_same => kept.extend(ends(&difference)),
            Some(Pick::Whole) => {
                found.insert(path.clone());
                match attributes_of_dir(&difference) {
                    Some(attributes) => undoings.push(Undoing::Attributes(path, attributes)),
                    None => dirs.push(ends(&difference)),
                }
            }
            Some(Pick::Hunks(ids)) => {
                found.insert(path.clone());
                let undoing = of_file(opened, view, &difference, ids)?;
                match undoing {
                    Undoing::Path(_) => dirs.push(vec![path]),
                    undoing => {
                        kept.push(path);
                        undoings.push(undoing);
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for path in chosen.keys().filter(|path| !found.contains(*path)) {
        let is_in = |dir: &MergedPath| path != dir && path.is_within(dir);
        let why = if gone.iter().any(is_in) { GONE } else { CHANGED };
        undoings.push(Undoing::Nothing(path.clone(), why));
    }
    let mut paths = BTreeSet::new();
    for ends in dirs {
        let Some(path) = ends.first().cloned() else { continue };
        let holds = |kept: &MergedPath| ends.iter().any(|end| kept.is_within(end));
        match kept.iter().any(holds) {
            true => {
                undoings.push(Undoing::Nothing(path, HOLDS_OTHERS));
            }
            false => drop(paths.insert(path)),
        }
    }
    let is_outermost = |path: &&MergedPath| !path.above().any(|above| paths.contains(&above));
    undoings.extend(paths.iter().filter(is_outermost).cloned().map(Undoing::Path));
    Ok(undoings)
}

/// Where something is, or would be, and where it was.
fn ends(difference: &Difference) -> Vec<MergedPath> {
    let change = &difference.change;
    let before = change.before.as_ref().filter(|_| !change.is_link && !change.is_carried);
    let from = before.map(|base| MergedPath::of_base(&base.path));
    let is_other = |from: &MergedPath| *from != change.path;
    [change.path.clone()].into_iter().chain(from.filter(is_other)).collect()
}

/// What a directory gets back of which only mode or owner changed.
fn attributes_of_dir(difference: &Difference) -> Option<[u32; 3]> {
    let after = difference.change.after.as_ref()?;
    let old = difference.old.as_ref()?;
    let stays =
        difference.kind == DifferenceKind::Modified && after.attr().kind == FileKind::Directory;
    stays.then_some([old.attr.mode, old.attr.uid, old.attr.gid])
}

fn of_file(
    opened: &Opened,
    view: &TreeView<'_>,
    difference: &Difference,
    ids: &BTreeSet<HunkId>,
) -> Result<Undoing> {
    let path = difference.change.path.clone();
    let (DiffPieces::File(file), Some(after)) =
        (pieces(opened, view, difference)?, &difference.change.after)
    else {
        return Ok(Undoing::Nothing(path, CHANGED));
    };
    let all: BTreeSet<_> = file.ids().collect();
    if ids.is_empty() || !ids.is_subset(&all) {
        return Ok(Undoing::Nothing(path, CHANGED));
    }
    if *ids == all {
        return Ok(Undoing::Path(path));
    }
    let FileHunks { text, attributes } = *file;
    let attr = after.attr();
    Ok(Undoing::Hunks {
        path,
        object: (attr.fileid, attr.ctime),
        content: text.with(&all.difference(ids).copied().collect()),
        attributes: attributes.filter(|a| ids.contains(&a.id)).map(|a| a.old),
        hunks: (ids.len(), all.len()),
    })
}
