//! Changes of base files that only git's ignore rules left out: git itself applies the rules to
//! untracked files alone, and the base may track these.

use super::diff::{DiffOptions, compare};
use super::error::Result;
use super::opened::OpenSession;
use super::selection::Selection;
use crate::delta::MergedPath;

/// How many of the changes are compared: the content of others may be as it was.
const MAX_COMPARED: usize = 100;

/// The base files that the session changed and that only the ignore rules of a selection left out
/// so far, at most [`MAX_NOTED`](super::selection::MAX_NOTED). Those with the fewest
/// directories above them are first.
///
/// # Errors
/// The session or the base cannot be read.
pub fn ignored_changes(opened: &OpenSession, selection: &Selection) -> Result<Vec<MergedPath>> {
    let mut changes = selection.ignored();
    changes.sort_by_cached_key(|change| (change.path.names().count(), change.path.clone()));
    let options = DiffOptions::default();
    opened.with_tree(|view| {
        let mut changed = Vec::new();
        for (number, change) in changes.into_iter().enumerate() {
            let path = change.path.clone();
            if number >= MAX_COMPARED || compare(opened, view, &options, change)?.is_some() {
                changed.push(path);
            }
        }
        Ok(changed)
    })
}
