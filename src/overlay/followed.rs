//! Moved base directories that the base moved too.
//!
//! A redirect names a base directory by the path that it had when the session moved it. If session
//! and base made the same move, the base directory is at the session's path, and shows through
//! there: the redirect is *followed*. Paths of origins and originals stay as they were recorded
//! until [`settle`] changes them, so both directions of the translation are here.
//!
//! While an apply is unfinished, no redirect is followed: the apply itself moves directories, and
//! then changes the redirects.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath, Original};
use crate::vfs::{FileId, FileKind, Name};

use super::cache::Invalidation;
use super::edit::Edit;
use super::error::Result;
use super::node::DirPlace;
use super::resolve::View;

/// The base directory that a redirect shows.
pub(super) struct ShownBaseDir {
    /// `None` if the base has another directory of the session at the redirect's path.
    pub base: Option<BasePath>,
    /// The base does not have the directory.
    pub is_missing: bool,
}

/// The base directory that shows through the directory `ino`, `name` in `parent`, which has a
/// redirect.
pub(super) fn shown_base_dir(
    view: &View<'_>,
    ino: Ino,
    redirect: BasePath,
    parent: &DirPlace,
    name: &Name,
) -> Result<ShownBaseDir> {
    let is_missing = is_missing(view, ino, &redirect)?;
    let is_apply_unfinished = || view.core.base.has_unfinished_apply();
    if let Some(base) = followed(view, ino, (&redirect, is_missing), parent, name)?
        && !is_apply_unfinished()?
    {
        return Ok(ShownBaseDir { base: Some(base), is_missing: false });
    }
    let is_anothers = is_missing && dir_at(view, &redirect).is_some();
    if is_anothers && is_apply_unfinished()? {
        return Ok(ShownBaseDir { base: Some(redirect), is_missing: false });
    }
    Ok(ShownBaseDir { base: Some(redirect).filter(|_| !is_anothers), is_missing })
}

/// Where the base moved the directory of a redirect, if the session shows it there. `is_missing`
/// says whether the base has none at the redirect's path.
fn followed(
    view: &View<'_>,
    ino: Ino,
    (redirect, is_missing): (&BasePath, bool),
    parent: &DirPlace,
    name: &Name,
) -> Result<Option<BasePath>> {
    match parent.base.as_ref().map(|base| base.join(name)) {
        Some(own) if is_same_move(view, ino, redirect, is_missing, &own)? => Ok(Some(own)),
        _ if is_missing => moved_with_parent(view, ino, redirect),
        _ => Ok(None),
    }
}

/// The place at which the base directory `path` shows; `None` if it is hidden.
///
/// Starts at the closest ancestor with a redirect, because a redirected directory shows whatever
/// hides its ancestors. Below a followed one, other redirects have the recorded paths.
pub(super) fn find_base_place(view: &View<'_>, path: &BasePath) -> Result<Option<Arc<DirPlace>>> {
    let mut prefix = path.clone();
    let mut below = Vec::new();
    let mut place = loop {
        if let Some(place) = shown_by_redirect(view, &prefix, &prefix)? {
            break place;
        }
        let Some((above, name)) = prefix.split() else {
            break view.place_of_inode(Ino::ROOT, FileId::ROOT)?;
        };
        below.push((std::mem::replace(&mut prefix, above), name));
    };
    let mut recorded = prefix;
    while let Some((base, name)) = below.pop() {
        recorded = recorded.join(&name);
        let moved_out = match recorded == base {
            true => None,
            false => shown_by_redirect(view, &recorded, &base)?,
        };
        place = match moved_out {
            Some(place) => place,
            None => match view.step_down(&place, &name, &base)? {
                Some(next) => Arc::new(next),
                None => return Ok(None),
            },
        };
        if let Some(ino) = place.ino
            && let Some(redirect) = view.txn.redirect(ino)?
        {
            recorded = redirect;
        }
    }
    Ok(Some(place))
}

/// The directory with the redirect `recorded`, if it shows the base directory `base`.
fn shown_by_redirect(
    view: &View<'_>,
    recorded: &BasePath,
    base: &BasePath,
) -> Result<Option<Arc<DirPlace>>> {
    let Some(ino) = view.txn.redirected_to(recorded)? else { return Ok(None) };
    let place = view.place_of_inode(ino, view.inode(ino)?.fileid())?;
    Ok(Some(place).filter(|place| place.base.as_ref() == Some(base)))
}

/// Whether a directory shows the base directory at its own path, `base`.
pub(super) fn shows_at_own_path(view: &View<'_>, row: &InodeRow, base: &BasePath) -> Result<bool> {
    match view.txn.redirect(row.ino)? {
        Some(_) => {
            let place = view.place_of_inode(row.ino, row.fileid())?;
            Ok(place.base.as_ref() == Some(base))
        }
        None => Ok(!view.is_opaque(row.ino)?),
    }
}

/// Whether the base does not have the directory of a redirect to `path`.
fn is_missing(view: &View<'_>, ino: Ino, path: &BasePath) -> Result<bool> {
    match view.core.base.stat(path) {
        Ok(there) if there.kind == FileKind::Directory => {
            is_anothers(view, ino, path, there.fileid)
        }
        Ok(_) => Ok(true),
        Err(error) => Ok(matches!(error, BaseError::NotFound)),
    }
}

/// Whether the base directory `there`, at `path`, is not that of `ino`, but one that session and
/// base both moved to `path`.
fn is_anothers(view: &View<'_>, ino: Ino, path: &BasePath, there: FileId) -> Result<bool> {
    if comes_from(view, ino, there)? {
        return Ok(false);
    }
    for other in view.txn.copied_up(there)? {
        if other != ino
            && let Some(redirect) = view.txn.redirect(other)?.filter(|redirect| redirect != path)
            && own_path(view, other)?.as_ref() == Some(path)
            && is_same_move(view, other, &redirect, false, path)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the session copied the directory `ino` from the base object `id`.
fn comes_from(view: &View<'_>, ino: Ino, id: FileId) -> Result<bool> {
    Ok(view.inode(ino)?.origin.is_some_and(|origin| origin.fileid == id))
}

fn dir_at(view: &View<'_>, path: &BasePath) -> Option<BaseAttr> {
    let attr = view.core.base.stat(path).ok();
    attr.filter(|attr| attr.kind == FileKind::Directory)
}

/// Whether the base has the directory of a redirect at `own`, the session's path: the same
/// directory, or any if the one of the redirect is missing (`git merge` makes another). Not the
/// one that the session replaced there, or moved on from there.
fn is_same_move(
    view: &View<'_>,
    ino: Ino,
    redirect: &BasePath,
    is_missing: bool,
    own: &BasePath,
) -> Result<bool> {
    if own == redirect {
        return Ok(false);
    }
    let Some(there) = dir_at(view, own) else { return Ok(false) };
    let origin = view.inode(ino)?.origin;
    // A directory that was sealed, and then moved, has a redirect to another than its origin.
    if origin.as_ref().is_some_and(|origin| origin.path != *redirect) {
        return Ok(false);
    }
    let moved_on = view.txn.redirected_to(own)?;
    if origin.is_some_and(|origin| origin.fileid == there.fileid) {
        let is_both = moved_on.map(|other| comes_from(view, other, there.fileid)).transpose()?;
        return Ok(is_both != Some(true));
    }
    if !is_missing || moved_on.is_some() {
        return Ok(false);
    }
    let removed = view.txn.original(own)?;
    let is_replaced =
        removed.is_some_and(|removed| removed.fileid == there.fileid) || view.is_opaque(ino)?;
    Ok(!is_replaced)
}

/// Where the base has a directory that the session moved out of one that both sides moved alike.
/// Only for directories that are below no other moved one, so that no two depend on each other.
fn moved_with_parent(view: &View<'_>, ino: Ino, redirect: &BasePath) -> Result<Option<BasePath>> {
    let mut above = redirect.clone();
    let mut below = Vec::new();
    while let Some((parent, name)) = above.split() {
        below.push(name);
        above = parent;
        let Some(moved) = view.txn.redirected_to(&above)?.filter(|moved| *moved != ino) else {
            continue;
        };
        let Some(own) = own_path(view, moved)? else { continue };
        if !is_same_move(view, moved, &above, is_missing(view, moved, &above)?, &own)? {
            continue;
        }
        let now = below.iter().rev().fold(own, |path, name| path.join(name));
        return Ok(dir_at(view, &now).map(|_| now));
    }
    Ok(None)
}

/// The merged path of a directory as a base path, unless it is below a moved one.
fn own_path(view: &View<'_>, ino: Ino) -> Result<Option<BasePath>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != Ino::ROOT {
        let Some((parent, name)) = view.txn.name_of(at)? else { return Ok(None) };
        if names.len() >= super::limits::MAX_DEPTH || view.txn.redirect(parent)?.is_some() {
            return Ok(None);
        }
        names.push(name);
        at = parent;
    }
    Ok(Some(names.iter().rev().fold(BasePath::root(), |path, name| path.join(name))))
}

/// The present path of a base object that was at `path` when the session recorded it.
pub(super) fn now_of(view: &View<'_>, path: &BasePath) -> Result<BasePath> {
    let (mut above, mut below) = (path.clone(), Vec::new());
    loop {
        if let Some(ino) = view.txn.redirected_to(&above)?
            && let Some(now) = base_of(view, ino)?
        {
            return Ok(below.iter().rev().fold(now, |path, name| path.join(name)));
        }
        let Some((parent, name)) = above.split() else { return Ok(path.clone()) };
        below.push(name);
        above = parent;
    }
}

/// The path under which the session recorded a base object that is at `path`, if it is another.
pub(super) fn recorded_of(view: &View<'_>, path: &BasePath) -> Result<Option<BasePath>> {
    if view.txn.redirects()?.is_empty() {
        return Ok(None);
    }
    let (mut above, mut below) = (path.clone(), Vec::new());
    loop {
        if let Some(ino) = view.place_of_base(&above)?.and_then(|place| place.ino)
            && let Some(redirect) = view.txn.redirect(ino)?
        {
            let was = below.iter().rev().fold(redirect, |path, name| path.join(name));
            return Ok((was != *path).then_some(was));
        }
        let Some((parent, name)) = above.split() else { return Ok(None) };
        below.push(name);
        above = parent;
    }
}

/// The original of a base object.
pub(super) fn original_at(view: &View<'_>, path: &BasePath) -> Result<Option<Original>> {
    if let Some(original) = view.txn.original(path)? {
        return Ok(Some(original));
    }
    match recorded_of(view, path)? {
        Some(was) => Ok(view.txn.original(&was)?),
        None => Ok(None),
    }
}

/// The base directory that a visible directory shows.
fn base_of(view: &View<'_>, ino: Ino) -> Result<Option<BasePath>> {
    if view.txn.name_of(ino)?.is_none() {
        return Ok(None);
    }
    Ok(view.place_of_inode(ino, view.shown(ino)?)?.base.clone())
}

/// As [`settle`], for moves with an end at, above or below one of `paths`.
pub(super) fn settle_at(edit: &mut Edit<'_>, paths: &[MergedPath]) -> Result<BTreeSet<MergedPath>> {
    let mut chosen = BTreeSet::new();
    for ino in edit.txn.redirects()? {
        let Some(was) = edit.txn.redirect(ino)? else { continue };
        let mut ends = Vec::new();
        if edit.txn.name_of(ino)?.is_some() {
            let place = edit.view().place_of_inode(ino, edit.view().shown(ino)?);
            // A directory without a path is not visible.
            ends.extend(place.map(|place| place.merged.clone()));
        }
        if let Some((above, name)) = was.split()
            && let Some(above) = edit.view().place_of_base(&above)?
        {
            ends.push(above.merged.join(&name));
        }
        let is_at = |end: &MergedPath| paths.iter().any(|p| p.is_within(end) || end.is_within(p));
        if ends.iter().any(is_at) {
            chosen.insert(ino);
        }
    }
    settle(edit, &|ino, _| chosen.contains(&ino))
}

/// Records the present paths of redirects that `is_chosen` and that are followed, also while an
/// apply is unfinished. Returns the directories in which names may be idle now.
pub(super) fn settle(
    edit: &mut Edit<'_>,
    is_chosen: &dyn Fn(Ino, &BasePath) -> bool,
) -> Result<BTreeSet<MergedPath>> {
    let mut dirs = BTreeSet::new();
    // During an apply, a directory in a followed one can be found once that one is settled.
    while let Some((ino, was, now)) = next_followed(&edit.view(), is_chosen)? {
        let above = was.split().map(|(above, _)| edit.view().place_of_base(&above)).transpose()?;
        settle_dir(edit, &was, &now)?;
        dirs.extend(above.flatten().map(|above| above.merged.clone()));
        let place = edit.view().place_of_inode(ino, edit.view().shown(ino)?)?;
        dirs.insert(place.merged.clone());
    }
    Ok(dirs)
}

/// A redirect that `is_chosen` and that is followed: its directory, the recorded path and the
/// present one.
pub(super) fn next_followed(
    view: &View<'_>,
    is_chosen: &dyn Fn(Ino, &BasePath) -> bool,
) -> Result<Option<(Ino, BasePath, BasePath)>> {
    for ino in view.txn.redirects()? {
        let Some(was) = view.txn.redirect(ino)?.filter(|was| is_chosen(ino, was)) else { continue };
        let Some((parent, name)) = view.txn.name_of(ino)? else { continue };
        let parent = view.place_of_inode(parent, view.shown(parent)?)?;
        let is_missing = is_missing(view, ino, &was)?;
        if let Some(now) = followed(view, ino, (&was, is_missing), &parent, &name)? {
            return Ok(Some((ino, was, now)));
        }
    }
    Ok(None)
}

/// Replaces the recorded path `was` of a base directory, and of all below it, by `now`.
fn settle_dir(edit: &mut Edit<'_>, was: &BasePath, now: &BasePath) -> Result<()> {
    edit.txn.rename_originals(was, now)?;
    let mut open = Vec::new();
    for ino in edit.txn.redirects()? {
        let Some(old) = edit.txn.redirect(ino)? else { continue };
        let Some(new) = moved_to(&old, was, now) else { continue };
        open.push(ino);
        let (parent, name) = match edit.txn.name_of(ino)? {
            Some(named) => named,
            None => continue,
        };
        let above = edit.view().place_of_inode(parent, edit.view().shown(parent)?)?;
        edit.txn.remove_redirect(ino)?;
        let has_origin = edit.view().inode(ino)?.origin.is_some();
        if !has_origin || above.base.as_ref().map(|base| base.join(&name)) != Some(new.clone()) {
            edit.txn.put_redirect(ino, &new)?;
        }
        edit.invalidate(Invalidation::All);
    }
    let mut rows = edit.txn.copied_links()?;
    rows.extend(edit.txn.copied_single_names()?);
    while let Some(ino) = open.pop() {
        rows.push(ino);
        let mut entries = Vec::new();
        edit.txn.dentries(ino, &mut |_, child, _, _| entries.push(child))?;
        for child in entries {
            if edit.view().inode(child)?.kind == FileKind::Directory {
                open.push(child);
            }
        }
    }
    for ino in rows {
        let mut row = edit.view().inode(ino)?;
        let Some(origin) = &mut row.origin else { continue };
        if let Some(new) = moved_to(&origin.path, was, now) {
            origin.path = new;
            edit.txn.put_inode(&row)?;
        }
    }
    edit.invalidate(Invalidation::All);
    Ok(())
}

/// `path` with the directory `now` in place of `was`, if it is at or below that.
fn moved_to(path: &BasePath, was: &BasePath, now: &BasePath) -> Option<BasePath> {
    let rest = path.as_bytes().strip_prefix(was.as_bytes())?;
    let is_below = rest.is_empty() || rest[0] == b'/';
    is_below.then(|| BasePath::from_bytes(&[now.as_bytes(), rest].concat())).flatten()
}
