//! Going through the merged tree, each directory before what is in it, names in order.

use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, Name};

use super::error::{InspectError, Result};

/// What to do after an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Go into it, if it is a directory, and on.
    Deeper,
    /// Go on behind it.
    Past,
    /// End.
    Stop,
}

/// Where an object stands among those that are gone through.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Levels below where it began: 0 for that itself.
    pub depth: usize,
    /// For each level from the first on: whether the ancestor there, or it itself, is the last
    /// one in its directory.
    pub is_last: &'a [bool],
}

/// What is called for an object: with its name, but for the one where it began.
pub type EachObject<'a> = dyn FnMut(Option<&Name>, &TreeObject, Standing<'_>) -> Result<Next> + 'a;

/// Calls `each` for `from` and all below it; whether it went to the end.
///
/// # Errors
/// Those of `each`, and that something cannot be read.
pub fn walk(view: &TreeView<'_>, from: &TreeObject, each: &mut EachObject<'_>) -> Result<bool> {
    walk_some(view, from, &|_| true, each)
}

/// The same for what is `wanted` below `from`; the rest does not count as being there.
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
    let standing = Standing { depth: 0, is_last: &is_last };
    match each(None, from, standing)? {
        Next::Deeper if from.attr().kind == FileKind::Directory => {}
        next => return Ok(next != Next::Stop),
    }
    // Not by recursion: a tree may be deeper than the stack.
    let mut levels = vec![children(from)?];
    while let Some(level) = levels.last_mut() {
        let next = level.next().map(|(name, object)| (name, object, level.len() == 0));
        is_last.truncate(levels.len() - 1);
        let Some((name, object, last)) = next else {
            levels.pop();
            continue;
        };
        is_last.push(last);
        let standing = Standing { depth: is_last.len(), is_last: &is_last };
        match each(Some(&name), &object, standing)? {
            Next::Deeper if object.attr().kind == FileKind::Directory => {
                levels.push(children(&object)?);
            }
            Next::Deeper | Next::Past => {}
            Next::Stop => return Ok(false),
        }
    }
    Ok(true)
}

/// The entries of a directory.
///
/// # Errors
/// They cannot be read.
pub fn children(view: &TreeView<'_>, dir: &TreeObject) -> Result<Vec<(Name, TreeObject)>> {
    view.children(dir).map_err(|source| InspectError::Path { path: dir.path().clone(), source })
}
