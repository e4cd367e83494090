//! Makes some paths of the tree those of a checkpoint again.
//!
//! The paths are closed, so no object of the rest changes. The rows at the paths become those of
//! the checkpoint, as in a restore of the whole tree. This module takes care of the directories
//! above them.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::BasePath;
use crate::delta::{Checkpoint, Ino, MergedPath, RestoreOutcome, RestorePaths, RestoreRequest};
use crate::vfs::{FileId, FsError, Time};

use super::restore::{called, record_restore};
use super::tree::{TreeView, visible_dir};
use crate::overlay::base_names::count_hidden_links;
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::ensure_dir;
use crate::overlay::edit::{Edit, moved_on};
use crate::overlay::error::Result;
use crate::overlay::moved_out::hide_moved_out;

/// Restores the paths, but for the counts of subdirectories and the audit rows.
pub(super) fn restore_at_paths(
    edit: &mut Edit<'_>,
    restore: &RestoreRequest,
    paths: &RestorePaths,
) -> Result<RestoreOutcome> {
    // `txn.restore` checks this too, but what comes before it may fail in a tree that changed.
    if let Some(seen) = restore.seen
        && edit.txn.is_changed_since(seen)?
    {
        return Ok(RestoreOutcome::ChangedSince);
    }
    let made = make_dirs_above(edit, paths)?;
    let before = objects_at(edit, paths)?;
    let removed = removals(edit, paths)?;
    let paths = RestorePaths { homes: homes(edit, paths)?, ..paths.clone() };
    let done = edit.txn.restore(restore, Some(&paths))?;
    if !matches!(done, RestoreOutcome::Restored(_)) {
        drop_unneeded(edit, made)?;
        return Ok(done);
    }
    edit.invalidate(Invalidation::All);
    for dir in &paths.dirs {
        if let Some(ino) = hide_the_rest(edit, dir, &paths, removed.get(dir).copied())? {
            count_subdirs_again(edit, ino)?;
        }
    }
    for path in &paths.absent {
        hide_base(edit, path)?;
    }
    hide_moved_out(edit)?;
    count_hidden_links(edit)?;
    drop_unneeded(edit, made)?;
    let after = objects_at(edit, &paths)?;
    let differing = after.iter().filter(|(path, object)| before.get(*path) != Some(*object));
    let mut changed: BTreeSet<_> = differing.map(|(path, _)| path.parent()).collect();
    changed.retain(|dir| !paths.dirs.contains(dir) && !dir.is_within_any(&paths.paths));
    for dir in &changed {
        update_dir(edit, dir)?;
    }
    Ok(done)
}

/// Writes an audit row for each path.
pub(super) fn record_restored_paths(
    edit: &mut Edit<'_>,
    to: &Checkpoint,
    paths: &RestorePaths,
) -> Result<()> {
    let objects = objects_at(edit, paths)?;
    for (path, object) in objects {
        let object = object.unwrap_or(FileId(0));
        if paths.dirs.contains(&path) {
            edit.record_restore((object, path), None, called(to))?;
        } else {
            record_restore(edit, to, (object, path))?;
        }
    }
    Ok(())
}

/// Creates delta rows for the parents of the paths, in which entries can come back. Returns the
/// directories that got one.
fn make_dirs_above(edit: &mut Edit<'_>, paths: &RestorePaths) -> Result<BTreeSet<MergedPath>> {
    let mut made = BTreeSet::new();
    for path in paths_and_dirs(paths) {
        let Some(place) = visible_dir(edit, &path.parent())? else { continue };
        if place.ino.is_some() {
            continue;
        }
        for above in path.above() {
            if visible_dir(edit, &above)?.is_some_and(|place| place.ino.is_some()) {
                break;
            }
            made.insert(above);
        }
        ensure_dir(edit, &place)?;
        edit.invalidate(Invalidation::All);
    }
    Ok(made)
}

/// Removes delta rows that [`make_dirs_above`] created and no entry or whiteout needs.
fn drop_unneeded(edit: &mut Edit<'_>, mut made: BTreeSet<MergedPath>) -> Result<()> {
    // A directory's path sorts before those of its entries, which are handled first.
    while let Some(dir) = made.pop_last() {
        let place = visible_dir(edit, &dir)?;
        let Some((ino, name)) = place.and_then(|place| place.ino).zip(dir.name()) else { continue };
        if edit.txn.has_dentries(ino)? || !edit.txn.whiteouts_in(&dir)?.is_empty() {
            continue;
        }
        let (parent, _) = edit.txn.name_of(ino)?.ok_or(FsError::Stale)?;
        edit.txn.delete_dentry(parent, &name)?;
        edit.txn.delete_inode(ino)?;
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

/// The objects at the paths and directories; `None` where there is none.
fn objects_at(
    edit: &Edit<'_>,
    paths: &RestorePaths,
) -> Result<BTreeMap<MergedPath, Option<FileId>>> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    let object_at = |path: &MergedPath| match tree.find(path) {
        Err(FsError::NotDirectory | FsError::Access) => Ok((path.clone(), None)),
        found => Ok((path.clone(), found?.map(|found| found.attr().fileid))),
    };
    paths_and_dirs(paths).map(object_at).collect()
}

/// Hides what the base has at a path. The directory above may show another directory of the base
/// than at the checkpoint, so that no saved row hides it.
fn hide_base(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    let is_shown = match tree.find(path) {
        Err(FsError::NotDirectory | FsError::Access) => false,
        found => found?.is_some(),
    };
    if let Some(place) = visible_dir(edit, &path.parent())?.filter(|_| is_shown) {
        ensure_dir(edit, &place)?;
        edit.txn.add_whiteout(path, edit.now)?;
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

/// When the directories that come back were removed.
fn removals(edit: &Edit<'_>, paths: &RestorePaths) -> Result<BTreeMap<MergedPath, Time>> {
    let mut removed = BTreeMap::new();
    for dir in &paths.dirs {
        // One below a removed directory was removed no later.
        let above = removed.get(&dir.parent()).copied();
        let since = edit.txn.whited_out_at(dir)?.map(|secs| Time { secs, nanos: 0 });
        if let Some(since) = since.or(above) {
            removed.insert(dir.clone(), since);
        }
    }
    Ok(removed)
}

/// The base paths that show at the paths.
fn homes(edit: &Edit<'_>, paths: &RestorePaths) -> Result<BTreeSet<BasePath>> {
    let mut homes = BTreeSet::new();
    for path in &paths.paths {
        let Some(name) = path.name() else {
            homes.insert(BasePath::root());
            continue;
        };
        if let Some(base) = visible_dir(edit, &path.parent())?.and_then(|place| place.base.clone())
        {
            homes.insert(base.join(&name));
        }
    }
    Ok(homes)
}

/// Hides what the base has in a directory that came back, but for the paths. Returns the number of
/// the directory, unless it shows no base directory.
fn hide_the_rest(
    edit: &mut Edit<'_>,
    dir: &MergedPath,
    paths: &RestorePaths,
    since: Option<Time>,
) -> Result<Option<Ino>> {
    let place = visible_dir(edit, dir)?.ok_or(FsError::NotFound)?;
    let Some(base) = &place.base else { return Ok(None) };
    let ino = ensure_dir(edit, &place)?;
    let listing = edit.core.base.list(base)?;
    for entry in &listing.entries {
        let path = dir.join(&entry.name);
        if !paths.paths.contains(&path) && !paths.dirs.contains(&path) {
            edit.txn.add_whiteout(&path, since.unwrap_or(edit.now))?;
        }
    }
    edit.invalidate(Invalidation::All);
    Ok(Some(ino))
}

/// Updates the count of subdirectories of a directory after entries were hidden.
fn count_subdirs_again(edit: &mut Edit<'_>, ino: Ino) -> Result<()> {
    let mut row = edit.view().inode(ino)?;
    let place = edit.view().place_of_inode(ino, row.fileid())?;
    row.subdirs = Some(edit.view().count_subdirs(&place)?);
    Ok(edit.txn.put_inode(&row)?)
}

/// Updates the times and the count of subdirectories of a directory in which entries changed.
fn update_dir(edit: &mut Edit<'_>, dir: &MergedPath) -> Result<()> {
    let Some(place) = visible_dir(edit, dir)? else { return Ok(()) };
    let Some(ino) = place.ino else { return Ok(()) };
    let mut row = edit.view().inode(ino)?;
    row.ctime = moved_on(row.ctime, edit.now);
    row.mtime = row.ctime;
    row.subdirs = edit.view().count_subdirs_or(&place, row.subdirs)?;
    edit.txn.put_inode(&row)?;
    edit.invalidate(Invalidation::All);
    Ok(())
}

/// The paths and the directories above that come back, sorted.
fn paths_and_dirs(paths: &RestorePaths) -> impl Iterator<Item = &MergedPath> {
    paths.dirs.union(&paths.paths)
}
