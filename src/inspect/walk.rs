//! Walks the merged tree: a directory before its entries, sorted by name.

use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, Name};

use super::error::{InspectError, Result};

/// How a walk continues after an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkControl {
    /// Enter the object, if it is a directory.
    Deeper,
    /// Skip what is below the object.
    Past,
    /// End the walk.
    Stop,
}

/// The position of an object in a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkPosition<'a> {
    /// The depth below the start, which has 0.
    pub depth: usize,
    /// For each level from 1 on, whether the ancestor at this level, or the object itself, is the
    /// last entry of its directory.
    pub is_last: &'a [bool],
}

/// Called for each object with its name; the start has no name.
pub type EachObject<'a> =
    dyn FnMut(Option<&Name>, &TreeObject, WalkPosition<'_>) -> Result<WalkControl> + 'a;

/// Calls `each` for `from` and everything below it; returns whether the walk reached the end.
///
/// # Errors
/// An error of `each`, or the session or the base cannot be read.
pub fn walk(view: &TreeView<'_>, from: &TreeObject, each: &mut EachObject<'_>) -> Result<bool> {
    walk_some(view, from, &|_| true, each)
}

/// Like [`walk`], as if objects below `from` that are not `wanted` did not exist.
///
/// # Errors
/// As [`walk`].
pub fn walk_some(
    view: &TreeView<'_>,
    from: &TreeObject,
    wanted: &dyn Fn(&TreeObject) -> bool,
    each: &mut EachObject<'_>,
) -> Result<bool> {
    let children = |dir: &TreeObject| -> Result<_> {
        let mut children = children(view, dir)?;
        children.retain(|(_, object)| wanted(object));
        Ok(children.into_iter())
    };
    let mut is_last = Vec::new();
    let standing = WalkPosition { depth: 0, is_last: &is_last };
    match each(None, from, standing)? {
        WalkControl::Deeper if from.attr().kind == FileKind::Directory => {}
        next => return Ok(next != WalkControl::Stop),
    }
    // No recursion: a tree may be deeper than the stack.
    let mut levels = vec![children(from)?];
    while let Some(level) = levels.last_mut() {
        let next = level.next().map(|(name, object)| (name, object, level.len() == 0));
        is_last.truncate(levels.len() - 1);
        let Some((name, object, last)) = next else {
            levels.pop();
            continue;
        };
        is_last.push(last);
        let standing = WalkPosition { depth: is_last.len(), is_last: &is_last };
        match each(Some(&name), &object, standing)? {
            WalkControl::Deeper if object.attr().kind == FileKind::Directory => {
                levels.push(children(&object)?);
            }
            WalkControl::Deeper | WalkControl::Past => {}
            WalkControl::Stop => return Ok(false),
        }
    }
    Ok(true)
}

/// The entries of a directory.
///
/// # Errors
/// The directory cannot be read.
pub fn children(view: &TreeView<'_>, dir: &TreeObject) -> Result<Vec<(Name, TreeObject)>> {
    view.children(dir).map_err(|source| InspectError::Path { path: dir.path().clone(), source })
}
