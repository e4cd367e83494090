//! Plans what `discard` removes from a session.

use std::collections::BTreeSet;

use super::diff::DiffOptions;
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::selection::Selection;
use super::split;
use crate::delta::MergedPath;
use crate::overlay::DiscardExtent;

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
/// another, and none has unselected changes below it.
///
/// # Errors
/// The session or the base cannot be read.
pub fn chosen(opened: &OpenSession, selection: &Selection) -> Result<DiscardChoice> {
    let options = DiffOptions { selection: selection.clone(), ..DiffOptions::default() };
    opened.with_tree(|view| {
        let (mut paths, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let mut whole = Vec::new();
        let mut failed = None;
        let through = view.changes(&mut |change| {
            let is_chosen = selection.has_change(view, &change);
            match split::first_unselected(opened, view, &options, &change) {
                Ok(Some(_)) if is_chosen => whole.push(change.path.clone()),
                Ok(_) if is_chosen => drop(paths.insert(change.path.clone())),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            if !is_chosen {
                kept.insert(change.path);
            }
            failed.is_none()
        });
        through?;
        if let Some(error) = failed {
            return Err(error);
        }
        kept.extend(whole.iter().cloned());
        let holds: BTreeSet<_> = kept.iter().flat_map(MergedPath::above).collect();
        paths.retain(|path| !holds.contains(path));
        let is_outermost = |path: &&MergedPath| !path.above().any(|above| paths.contains(&above));
        Ok(DiscardChoice { paths: paths.iter().filter(is_outermost).cloned().collect(), whole })
    })
}

/// The paths of a selection that `discard` removes.
#[derive(Debug, Clone, Default)]
pub struct DiscardChoice {
    /// The paths that will show the base again.
    pub paths: Vec<MergedPath>,
    /// Deleted directories that are selected only in part: they come back as a whole or not at all.
    pub whole: Vec<MergedPath>,
}
