//! Plans what `discard` removes from a session.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::DiffOptions;
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::selection::Selection;
use super::split;
use super::usage::usage;
use crate::delta::MergedPath;
use crate::overlay::{Change, DiscardExtent};

/// The steps after which the paths `asked` show the base again. Changes nothing.
///
/// # Errors
/// The session or the base cannot be read.
pub fn plan_discard(opened: &OpenSession, asked: &[MergedPath]) -> Result<DiscardExtent> {
    opened.with_tree(|view| {
        let path = MergedPath::root();
        view.discard_extent(asked).map_err(|source| InspectError::Path { path, source })
    })
}

/// Whether the disk has room to keep what the session holds at and below these paths for a
/// checkpoint. Without room for all that the session holds, it is counted what that is.
///
/// # Errors
/// The session or the base cannot be read.
pub fn has_room_to_keep(opened: &OpenSession, paths: &[MergedPath]) -> Result<bool> {
    let session = opened.session();
    if session.has_room_to_keep(session.content_bound()) {
        return Ok(true);
    }
    let held = opened.with_tree(|view| {
        let mut held: u64 = 0;
        for path in paths {
            // Nothing is held of what is gone.
            let Ok(Some(object)) = view.find(path) else { continue };
            let below = usage(view, &object, &mut Vec::new(), &mut |_, _, _| {})?;
            held = held.saturating_add(below.session);
        }
        Ok(held)
    })?;
    Ok(session.has_room_to_keep(held))
}

/// The paths to discard for a selection that is more than a list of paths. No path is within
/// another, and none takes unselected changes with it.
///
/// # Errors
/// The session or the base cannot be read.
pub fn chosen(opened: &OpenSession, selection: &Selection) -> Result<DiscardChoice> {
    let options = DiffOptions { selection: selection.clone(), ..DiffOptions::default() };
    opened.with_tree(|view| {
        let (mut paths, mut left) = (BTreeMap::new(), Vec::new());
        let (mut whole, mut tied) = (Vec::new(), Vec::new());
        let mut failed = None;
        let mut sort = |change: Change| -> Result<()> {
            let is_chosen = selection.has_change(view, &change);
            let ends = view.discard_ends(&change).map_err(|e| InspectError::at(&change.path, e))?;
            let is_split = split::first_unselected(opened, view, &options, &change)?.is_some();
            if is_chosen && !is_split {
                paths.insert(change.path, ends);
                return Ok(());
            }
            if is_chosen {
                let list = if ends.len() > 1 { &mut tied } else { &mut whole };
                list.push(change.path);
            }
            left.extend(ends);
            Ok(())
        };
        let mut denied = Vec::new();
        let mut each = |change| {
            failed = sort(change).err();
            failed.is_none()
        };
        let through = view.changes_past_denied(&mut each, &mut |change| denied.push(change));
        if let Some(error) = failed {
            return Err(error);
        }
        through?;
        // What cannot be compared stays.
        for change in denied {
            left.extend(
                [Some(change.path), change.from.as_ref().map(MergedPath::of_base)]
                    .into_iter()
                    .flatten(),
            );
        }
        leave_out_tied(&mut paths, left, &mut tied);
        let is_outermost = |path: &&MergedPath| !path.above().any(|up| paths.contains_key(&up));
        let paths = paths.keys().filter(is_outermost).cloned().collect();
        Ok(DiscardChoice { paths, whole, tied })
    })
}

/// Removes the paths whose discard would also discard a change at a path in `left`: one of their
/// ends is above it, or of a move also there; and so on transitively. Adds removed moves to `tied`.
fn leave_out_tied(
    paths: &mut BTreeMap<MergedPath, Vec<MergedPath>>,
    mut left: Vec<MergedPath>,
    tied: &mut Vec<MergedPath>,
) {
    while !left.is_empty() {
        let above: BTreeSet<_> = left.iter().flat_map(MergedPath::above).collect();
        let here: BTreeSet<_> = left.drain(..).collect();
        paths.retain(|path, ends| {
            let is_move = ends.len() > 1;
            let is_in_way = |end: &MergedPath| above.contains(end) || is_move && here.contains(end);
            let stays = !ends.iter().any(is_in_way);
            if !stays {
                tied.extend(is_move.then(|| path.clone()));
                left.append(ends);
            }
            stays
        });
    }
}

/// The paths of a selection that `discard` removes.
#[derive(Debug, Clone, Default)]
pub struct DiscardChoice {
    /// The paths that will show the base again.
    pub paths: Vec<MergedPath>,
    /// Deleted directories that are selected only in part: they come back as a whole or not at all.
    pub whole: Vec<MergedPath>,
    /// Moves that would take changes with them that are not selected.
    pub tied: Vec<MergedPath>,
}
