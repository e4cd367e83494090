//! Moves that `apply` made in the base: redirects and origins get the new paths.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::MergedPath;
use crate::vfs::{FileId, FileKind};

use super::discard::entries_of;
use super::rebase::RebaseItem;
use super::tree::visible_dir;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;

/// Points redirects into moved base directories at their new paths, including redirects that a
/// client moved. Returns the paths of each of these base directories, before and after.
///
/// The base directory's number shows whether that was done before. A copied base has other
/// numbers: there, an applied directory is recognised by its redirect, and one below it by its
/// old path, where nothing is.
pub(super) fn follow_moves(
    edit: &mut Edit<'_>,
    applied: &[RebaseItem],
    moves: &AppliedMoves,
) -> Result<Vec<(BasePath, BasePath)>> {
    if moves.is_empty() {
        return Ok(Vec::new());
    }
    let objects: BTreeMap<FileId, &RebaseItem> = applied
        .iter()
        .filter_map(|applied| Some((applied.object?.0, applied)))
        .filter(|(_, applied)| applied.from.is_some())
        .collect();
    let mut followed = Vec::new();
    for ino in edit.txn.redirects()? {
        let Some(old) = edit.txn.redirect(ino)? else { continue };
        let Some(new) = moves.follow(&old) else { continue };
        let mut row = edit.view().inode(ino)?;
        let at = |path: &BasePath| -> Result<Option<BaseAttr>> {
            let attr = edit.view().base_attr_at(path)?;
            Ok(attr.filter(|attr| attr.kind == FileKind::Directory))
        };
        let Some(after) = at(&new)? else { continue };
        let before = at(&old)?;
        let is_it =
            |attr: &BaseAttr| row.origin.as_ref().is_none_or(|origin| origin.fileid == attr.fileid);
        let from = objects.get(&row.fileid()).and_then(|applied| applied.from.as_ref());
        let is_applied = from.is_some_and(|from| base_bytes(from) == old.as_bytes());
        let is_new = match &before {
            Some(before) if is_it(before) => false,
            Some(_) => is_applied || is_it(&after),
            None => true,
        };
        if !is_new {
            continue;
        }
        if let Some(origin) = &mut row.origin {
            origin.path = new.clone();
        }
        followed.push((row, old, new));
    }
    // Directories may have swapped paths: a base directory has one redirect at a time (R1).
    for (row, ..) in &followed {
        edit.txn.remove_redirect(row.ino)?;
    }
    // A directory before its entries: their base paths depend on it.
    followed.sort_by(|(.., a), (.., b)| a.cmp(b));
    let mut moved = Vec::new();
    for (row, old, new) in followed {
        moved.extend(drop_redirect_of_other(edit, &new)?);
        edit.txn.put_inode(&row)?;
        edit.txn.put_redirect(row.ino, &new)?;
        edit.invalidate(Invalidation::All);
        moved.push((old, new));
    }
    Ok(moved)
}

/// Removes the redirect of the directory that had this base path before another one moved
/// there. If it moved to its own path in the base, a later request handles it; its paths are
/// returned. A directory that the base lost is the session's own from then on.
fn drop_redirect_of_other(
    edit: &mut Edit<'_>,
    path: &BasePath,
) -> Result<Option<(BasePath, BasePath)>> {
    let Some(ino) = edit.txn.redirected_to(path)? else { return Ok(None) };
    let Some((parent, name)) = edit.txn.name_of(ino)? else { return Ok(None) };
    let place = edit.view().place_of_inode(parent, edit.view().shown(parent)?)?;
    let own = place.base.as_ref().map(|base| base.join(&name));
    let there = own.as_ref().map(|own| edit.view().base_attr_at(own)).transpose()?.flatten();
    let mut row = edit.view().inode(ino)?;
    edit.txn.remove_redirect(ino)?;
    edit.invalidate(Invalidation::All);
    if let (Some(own), Some(there), Some(origin)) = (own, &there, &mut row.origin)
        && origin.fileid == there.fileid
    {
        origin.path = own.clone();
        edit.txn.put_inode(&row)?;
        return Ok(Some((path.clone(), own)));
    }
    row.origin = None;
    edit.txn.put_inode(&row)?;
    Ok(None)
}

/// Updates the origins of rows below a directory that moved in the base. The directories among
/// them are added to `dirs`, and the paths of each base object, before and after, to `moved`.
pub(super) fn update_origins_below(
    edit: &mut Edit<'_>,
    dir: &MergedPath,
    moves: &AppliedMoves,
    (dirs, moved): (&mut BTreeSet<MergedPath>, &mut Vec<(BasePath, BasePath)>),
) -> Result<()> {
    let mut open = vec![dir.clone()];
    while let Some(path) = open.pop() {
        let Some(place) = visible_dir(edit, &path)? else { continue };
        let (Some(ino), Some(base)) = (place.ino, &place.base) else { continue };
        for (name, child) in entries_of(edit, ino)? {
            let Some(mut row) = edit.txn.inode(child)? else { continue };
            let Some(origin) = &mut row.origin else { continue };
            let now = base.join(&name);
            let moved_along = moves.follow_dir_of(&origin.path).as_ref() == Some(&now);
            let is_dir = row.kind == FileKind::Directory;
            // A copied base has other numbers than the session's. A directory that moved by
            // itself may belong to a later request, which has to find it as it was applied.
            let is_there = edit.view().base_attr_at(&now)?.is_some_and(|attr| {
                (attr.fileid == origin.fileid && !is_dir) || (attr.kind == row.kind && moved_along)
            });
            if origin.path == now || !is_there {
                continue;
            }
            let was = std::mem::replace(&mut origin.path, now.clone());
            moved.push((was, now));
            edit.txn.put_inode(&row)?;
            if is_dir {
                edit.txn.remove_redirect(child)?;
                edit.invalidate(Invalidation::All);
                dirs.insert(path.join(&name));
                open.push(path.join(&name));
            }
        }
    }
    Ok(())
}

/// Updates the origins of files that the session moved out of directories that moved in the base.
/// The paths of each base object, before and after, are added to `moved`.
pub(super) fn update_origins_outside(
    edit: &mut Edit<'_>,
    moves: &AppliedMoves,
    moved: &mut Vec<(BasePath, BasePath)>,
) -> Result<()> {
    let mut rows = edit.txn.copied_links()?;
    rows.extend(edit.txn.copied_single_names()?);
    for ino in rows {
        let mut row = edit.view().inode(ino)?;
        let Some(origin) = &mut row.origin else { continue };
        let Some(now) = moves.follow_dir_of(&origin.path) else { continue };
        let there = edit.view().base_attr_at(&now)?;
        if there.is_some_and(|there| there.fileid == origin.fileid) {
            moved.push((std::mem::replace(&mut origin.path, now.clone()), now));
            edit.txn.put_inode(&row)?;
        }
    }
    Ok(())
}

/// The path in the base of a path in the merged tree.
pub(super) fn base_bytes(path: &MergedPath) -> &[u8] {
    path.as_bytes().get(1..).unwrap_or_default()
}

/// The moves that one apply made in the base: old path to new path.
pub(super) struct AppliedMoves(BTreeMap<Vec<u8>, Vec<u8>>);

impl AppliedMoves {
    pub(super) fn of(applied: &[RebaseItem]) -> Self {
        let moved = applied.iter().filter(|applied| applied.object.is_some());
        let moved = moved.filter_map(|applied| Some((applied.from.as_ref()?, &applied.path)));
        Self(moved.map(|(from, to)| (base_bytes(from).into(), base_bytes(to).into())).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Path after the moves, if it moves: the move of the longest prefix decides.
    pub(super) fn follow(&self, path: &BasePath) -> Option<BasePath> {
        let bytes = path.as_bytes();
        let ends = (1..=bytes.len()).rev().filter(|&end| end == bytes.len() || bytes[end] == b'/');
        let found = ends.into_iter().find_map(|end| Some((self.0.get(&bytes[..end])?, end)));
        let (to, end) = found?;
        BasePath::from_bytes(&[to, &bytes[end..]].concat())
    }

    /// Path after the moves of its directory, ignoring a move of the path itself.
    pub(super) fn follow_dir_of(&self, path: &BasePath) -> Option<BasePath> {
        let (dir, name) = path.split()?;
        Some(self.follow(&dir)?.join(&name))
    }
}
