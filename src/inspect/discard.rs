//! Plans what `discard` removes from a session.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::DiffOptions;
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::selection::Selection;
use super::split;
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

/// The paths to discard for a selection that is more than a list of paths. No path is within
/// another, and none takes unselected changes with it.
///
/// # Errors
/// The session or the base cannot be read.
pub fn chosen(opened: &OpenSession, selection: &Selection) -> Result<DiscardChoice> {
    let options = DiffOptions { selection: selection.clone(), ..DiffOptions::default() };
    opened.with_tree(|view| {
        let (mut paths, mut left) = (BTreeMap::new(), Vec::new());
        let mut whole = Vec::new();
        let mut failed = None;
        let through = view.changes(&mut |change| {
            let (old, is_chosen) = (old_path(&change), selection.has_change(view, &change));
            match split::first_unselected(opened, view, &options, &change) {
                Ok(Some(_)) if is_chosen => whole.push(change.path.clone()),
                Ok(_) if is_chosen => drop(paths.insert(change.path, old)),
                Ok(_) => left.extend([Some(change.path), old].into_iter().flatten()),
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        });
        through?;
        if let Some(error) = failed {
            return Err(error);
        }
        left.extend(whole.iter().cloned());
        let holds: BTreeSet<_> = left.iter().flat_map(MergedPath::above).collect();
        paths.retain(|path, _| !holds.contains(path));
        let tied = leave_out_tied(&mut paths, left);
        let is_outermost = |path: &&MergedPath| !path.above().any(|up| paths.contains_key(&up));
        let paths = paths.keys().filter(is_outermost).cloned().collect();
        Ok(DiscardChoice { paths, whole, tied })
    })
}

/// The old path of what a change moves.
fn old_path(change: &Change) -> Option<MergedPath> {
    let base = change.base_path().filter(|_| !change.is_link)?;
    Some(MergedPath::of_base(base)).filter(|from| *from != change.path)
}

/// Removes the paths of moves whose discard would also discard a change at a path in `left`,
/// because one of the two paths of the move is there or above it; and so on transitively. `paths`
/// has the old path of each move. Returns the removed paths.
fn leave_out_tied(
    paths: &mut BTreeMap<MergedPath, Option<MergedPath>>,
    mut left: Vec<MergedPath>,
) -> Vec<MergedPath> {
    let mut tied = Vec::new();
    while !left.is_empty() {
        let held: BTreeSet<_> = left
            .drain(..)
            .flat_map(|path| {
                let above: Vec<_> = path.above().collect();
                above.into_iter().chain([path])
            })
            .collect();
        paths.retain(|path, old| {
            let is_tied = old.as_ref().is_some_and(|old| held.contains(old) || held.contains(path));
            if is_tied {
                tied.push(path.clone());
                left.extend([path.clone()].into_iter().chain(old.take()));
            }
            !is_tied
        });
    }
    tied
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
