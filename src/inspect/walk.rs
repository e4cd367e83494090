//! Walks the merged tree: a directory before its entries, sorted by name.

use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, FsError, Name};

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
    walk_with(view, from, (&|_| true, None), each)
}

/// Like [`walk`], as if objects below `from` that are not `wanted` did not exist. Passes by
/// directories that cannot be listed because access is denied, and adds their paths to `denied`.
///
/// # Errors
/// As [`walk`], for all other reasons.
pub fn walk_past_denied(
    view: &TreeView<'_>,
    from: &TreeObject,
    wanted: &dyn Fn(&TreeObject) -> bool,
    denied: &mut Vec<MergedPath>,
    each: &mut EachObject<'_>,
) -> Result<bool> {
    walk_with(view, from, (wanted, Some(denied)), each)
}

/// What a walk enters: the wanted objects, and whether it notes what is denied and continues.
type Entering<'a> = (&'a dyn Fn(&TreeObject) -> bool, Option<&'a mut Vec<MergedPath>>);

fn walk_with(
    view: &TreeView<'_>,
    from: &TreeObject,
    (wanted, mut denied): Entering<'_>,
    each: &mut EachObject<'_>,
) -> Result<bool> {
    let mut children = |dir: &TreeObject| -> Result<_> {
        let mut children = match (children(view, dir), &mut denied) {
            (Err(InspectError::Path { path, source: FsError::Access }), Some(denied)) => {
                denied.push(path);
                Vec::new()
            }
            (children, _) => children?,
        };
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
