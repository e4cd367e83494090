//! Splits changes of removed and renamed directories that are selected only in part.

use super::diff::{DiffOptions, at, base_error};
use super::error::Result;
use super::opened::OpenSession;
use super::walk::{WalkControl, walk};
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::MergedPath;
use crate::overlay::{BaseObject, Change, TreeView};
use crate::vfs::FileKind;

/// Calls `each` for a base object and everything below it, a directory before its entries, sorted
/// by name. `each` returns whether to enter a directory.
///
/// # Errors
/// An error of `each`, or the base cannot be read.
pub(super) fn walk_base(
    opened: &OpenSession,
    from: &BaseObject,
    each: &mut dyn FnMut(&BasePath, &BaseAttr) -> Result<bool>,
) -> Result<()> {
    walk_base_with(opened, from, false, each)
}

/// As [`walk_base`], but passes by what cannot be listed or looked at because access is denied.
///
/// # Errors
/// As [`walk_base`], for all other reasons.
pub(super) fn walk_base_past_denied(
    opened: &OpenSession,
    from: &BaseObject,
    each: &mut dyn FnMut(&BasePath, &BaseAttr) -> Result<bool>,
) -> Result<()> {
    walk_base_with(opened, from, true, each)
}

fn walk_base_with(
    opened: &OpenSession,
    from: &BaseObject,
    is_past_denied: bool,
    each: &mut dyn FnMut(&BasePath, &BaseAttr) -> Result<bool>,
) -> Result<()> {
    let is_passed = |error: &BaseError| {
        matches!(error, BaseError::NotFound) || is_past_denied && matches!(error, BaseError::Denied)
    };
    let mut open = vec![(from.path.clone(), Some(from.attr.clone()))];
    while let Some((path, attr)) = open.pop() {
        let attr = match attr.map_or_else(|| opened.base().stat(&path), Ok) {
            Ok(attr) => attr,
            Err(error) if is_passed(&error) => continue,
            Err(source) => return Err(base_error(opened, &path, source)),
        };
        if !each(&path, &attr)? || attr.kind != FileKind::Directory {
            continue;
        }
        let listing = match opened.base().list(&path) {
            Ok(listing) => listing,
            Err(error) if is_passed(&error) => continue,
            Err(source) => return Err(base_error(opened, &path, source)),
        };
        let mut below: Vec<_> = listing.entries.iter().map(|e| path.join(&e.name)).collect();
        below.sort_unstable_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
        open.extend(below.into_iter().map(|path| (path, None)));
    }
    Ok(())
}

/// The base directory that a change removes with all its entries.
fn removed_dir(change: &Change) -> Option<&BaseObject> {
    let is_dir = |base: &&BaseObject| base.attr.kind == FileKind::Directory;
    let stays = change.after.as_ref().is_some_and(|a| a.attr().kind == FileKind::Directory);
    let base = change.before.as_ref().filter(|_| !change.is_link).filter(is_dir);
    base.filter(|_| !stays)
}

/// The first object that a change removes or moves with a directory and that is not selected.
pub(super) fn first_unselected(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: &Change,
) -> Result<Option<MergedPath>> {
    let is_dir = |base: &&BaseObject| base.attr.kind == FileKind::Directory;
    let replaced = change.replaced.as_ref().filter(is_dir);
    for base in removed_dir(change).into_iter().chain(replaced) {
        if !options.selection.may_split(&MergedPath::of_base(&base.path)) {
            continue;
        }
        let mut kept = None;
        each_removed_below(opened, view, options, (base, change), &mut |object, is_chosen| {
            if !is_chosen && kept.is_none() {
                kept = Some(MergedPath::of_base(&object.path));
            }
        })?;
        if kept.is_some() {
            return Ok(kept);
        }
    }
    excluded_in_moved(view, options, change)
}

/// The first selected object in a removed directory that is not selected itself.
pub(super) fn first_selected(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: &Change,
) -> Result<Option<MergedPath>> {
    let Some(base) = removed_dir(change) else { return Ok(None) };
    let selection = &options.selection;
    let places = [&MergedPath::of_base(&base.path), &change.path];
    if selection.has_change(view, change) || !places.iter().any(|dir| selection.may_hold(dir)) {
        return Ok(None);
    }
    let mut found = None;
    each_removed_below(opened, view, options, (base, change), &mut |object, is_chosen| {
        if is_chosen && found.is_none() {
            found = Some(MergedPath::of_base(&object.path));
        }
    })?;
    Ok(found)
}

/// The first object that a change moves with a base directory and that is excluded by its old or
/// new path.
fn excluded_in_moved(
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: &Change,
) -> Result<Option<MergedPath>> {
    let selection = &options.selection;
    let (Some(base), Some(after)) = (&change.before, &change.after) else { return Ok(None) };
    let home = MergedPath::of_base(&base.path);
    let moves = base.attr.kind == FileKind::Directory && !change.is_link && home != change.path;
    if !moves || change.moved_with_parent || !selection.leaves_out() {
        return Ok(None);
    }
    let mut kept = None;
    walk(view, after, &mut |_, object, _| {
        let is_file = object.attr().kind != FileKind::Directory;
        let from = object.base_path().or(object.origin().map(|origin| &origin.path));
        if let Some(from) = from.filter(|_| is_file && kept.is_none()) {
            let from = MergedPath::of_base(from);
            let paths = [object.path(), &from];
            if paths.into_iter().any(|path| selection.is_excluded(view, path, false)) {
                kept = Some(object.path().clone());
            }
        }
        Ok(WalkControl::Deeper)
    })?;
    Ok(kept)
}

/// Replaces the change of a partly selected directory by changes of the selected files; `None` if
/// the change applies as a whole.
pub(super) fn parts(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: &Change,
) -> Result<Option<Vec<Change>>> {
    let is_chosen = options.selection.has_change(view, change);
    if !is_chosen
        && removed_dir(change).is_none()
        && options.selection.excluded_end(change).is_some()
    {
        return Ok(Some(Vec::new()));
    }
    if let Some(base) = removed_dir(change) {
        let home = MergedPath::of_base(&base.path);
        if !options.selection.may_split(&home) && !options.selection.may_split(&change.path) {
            return Ok(None);
        }
        let (mut parts, mut is_whole) = (Vec::new(), is_chosen);
        each_removed_below(opened, view, options, (base, change), &mut |object, is_chosen| {
            is_whole &= is_chosen;
            if is_chosen {
                let path = MergedPath::of_base(&object.path);
                parts.push((object, path));
            }
        })?;
        if is_whole {
            return Ok(None);
        }
        let parts = parts.into_iter().map(|(object, path)| {
            view.gone(object, path).map_err(|source| at(&change.path, source))
        });
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        if change.after.is_some() && is_chosen {
            parts.push(Change { before: None, replaced: None, ..change.clone() });
        }
        return Ok(Some(parts));
    }
    let (Some(base), Some(after)) = (&change.before, &change.after) else { return Ok(None) };
    let is_dir = after.attr().kind == FileKind::Directory;
    let moves = is_dir && !change.is_link && MergedPath::of_base(&base.path) != change.path;
    if is_chosen || !moves || change.moved_with_parent {
        return Ok(None);
    }
    let home = MergedPath::of_base(&base.path);
    if !options.selection.may_split(&home) && !options.selection.may_split(&change.path) {
        return Ok(None);
    }
    let mut parts = Vec::new();
    walk(view, after, &mut |_, object, _| {
        let Some(path) = object.base_path().filter(|_| object.attr().kind != FileKind::Directory)
        else {
            return Ok(WalkControl::Deeper);
        };
        let attr = opened.base().stat(path);
        let attr = attr.map_err(|source| base_error(opened, path, source))?;
        let moved = Change {
            before: Some(BaseObject { path: path.clone(), attr }),
            after: Some(object.clone()),
            is_moved: true,
            ..Change::gone(base.clone(), object.path().clone())
        };
        if options.selection.has_change(view, &moved) {
            parts.push(moved);
        }
        Ok(WalkControl::Deeper)
    })?;
    Ok(Some(parts))
}

/// Calls `each` for everything below a removed directory except directories, with whether it is
/// selected.
fn each_removed_below(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    (dir, change): (&BaseObject, &Change),
    each: &mut dyn FnMut(BaseObject, bool),
) -> Result<()> {
    walk_base(opened, dir, &mut |path, attr| {
        if *path == dir.path {
            return Ok(true);
        }
        let object = BaseObject { path: path.clone(), attr: attr.clone() };
        if view.is_moved_away(&object).map_err(|source| at(&change.path, source))? {
            return Ok(false);
        }
        let is_dir = attr.kind == FileKind::Directory;
        if !is_dir {
            let rest = &path.as_bytes()[dir.path.as_bytes().len()..];
            let other = MergedPath::from_bytes(&[change.path.as_bytes(), rest].concat());
            let has = |path: &MergedPath| options.selection.has(view, path, is_dir);
            let is_chosen = has(&MergedPath::of_base(path)) || other.as_ref().is_some_and(has);
            each(object, is_chosen);
        }
        Ok(true)
    })
}
