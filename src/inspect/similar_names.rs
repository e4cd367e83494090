//! Finds names that are similar to one that does not exist, which may be a typing error.

use std::collections::BTreeSet;

use super::diff::at;
use super::error::Result;
use super::opened::find_if_there;
use crate::delta::MergedPath;
use crate::overlay::TreeView;
use crate::vfs::{FileKind, Name};

/// The most names of a directory that are compared.
const MAX_NAMES: usize = 4096;

/// The most paths that are offered.
const MAX_OFFERED: usize = 3;

/// The most edits (insert, delete, replace or swap a letter) between similar names.
const MAX_EDITS: usize = 2;

/// The paths that a user may have meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimilarPaths {
    /// The paths in `dir` with similar names, the most similar first.
    pub paths: Vec<MergedPath>,
    /// The closest directory above that was there; `None` if not even the root was.
    pub dir: Option<MergedPath>,
}

/// The paths that are similar to one that is in none of `trees`.
///
/// # Errors
/// The session or the base cannot be read.
pub(super) fn similar_paths(path: &MergedPath, trees: [&TreeView<'_>; 2]) -> Result<SimilarPaths> {
    let mut missing = path.clone();
    for dir in path.above() {
        if let Some(names) = names_in(&dir, trees)? {
            let wanted = missing.name().map(|name| text_of(name.as_bytes())).unwrap_or_default();
            let mut similar: Vec<_> = names
                .iter()
                .filter_map(|name| {
                    let edits = similar_edits(&wanted, &text_of(name.as_bytes()), 1)?;
                    Some((edits, dir.join(name)))
                })
                .collect();
            similar.sort();
            let paths = similar.into_iter().take(MAX_OFFERED).map(|(_, path)| path).collect();
            return Ok(SimilarPaths { paths, dir: Some(dir) });
        }
        missing = dir;
    }
    Ok(SimilarPaths::default())
}

/// The names in a directory of some trees; `None` if it is in none of them.
fn names_in(dir: &MergedPath, trees: [&TreeView<'_>; 2]) -> Result<Option<BTreeSet<Name>>> {
    let mut names = None;
    for view in trees {
        let found = find_if_there(view, dir)?;
        if let Some(found) = found.filter(|found| found.attr().kind == FileKind::Directory) {
            let children = view.children(&found).map_err(|source| at(dir, source))?;
            let children = children.into_iter().take(MAX_NAMES).map(|(name, _)| name);
            names.get_or_insert_with(BTreeSet::new).extend(children);
        }
    }
    Ok(names)
}

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The number of edits (insert, delete, replace or swap a letter) that make one name of another, up
/// to case; `None` if the names are not similar. Similar means: equal up to case, or at most two
/// edits, and more than `letters_per_edit` letters of `wanted` for each.
pub fn similar_edits(wanted: &str, name: &str, letters_per_edit: usize) -> Option<usize> {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let edits = strsim::damerau_levenshtein(&wanted, &name);
    let is_similar = edits <= MAX_EDITS && wanted.chars().count() > letters_per_edit * edits;
    (edits == 0 || is_similar).then_some(edits)
}
