//! Drops the session's changes at paths, so that the base shows there again.

use std::collections::{BTreeSet, HashSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{AuditProcedure, Ino, InodeRow, MergedPath, Origin};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Outcome};
use crate::worker::Cost;

use super::discard_extent::{DiscardExtent, is_in};
use super::tree::{TreeView, visible_dir};
use crate::overlay::base_names::{
    add_entries_at_base_names, adopt_base_name, count_hidden_links, detect_new_links,
    names_in_base, path_of_base_name,
};
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::replace_mark;
use crate::overlay::edit::{Edit, moved_on};
use crate::overlay::error::Result;
use crate::overlay::followed::settle_at;
use crate::overlay::moved_out::{bare_place, hide_moved_out, may_show_again, recorded_dir};
use crate::overlay::node::{DirPlace, Node};
use crate::overlay::original::{copy_original, forget_originals_at};
use crate::overlay::{Overlay, copy_up_background};

impl Overlay {
    /// Drops the session's changes at `paths`, and at the paths that must go with them
    /// ([`TreeView::discard_extent`]). It is one change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    /// [`FsError::TryLater`] while the base has the journal of an unfinished apply.
    pub async fn discard(
        &self,
        caller: &Caller,
        paths: Vec<MergedPath>,
    ) -> std::result::Result<DiscardExtent, FsError> {
        self.change_unlimited(caller, move |edit| {
            refuse_during_apply(edit)?;
            // Of a move that the base made too, both ends are given up.
            let settled = settle_at(edit, &paths)?;
            let extent = TreeView { view: edit.view(), knows_base: true }.discard_extent(&paths)?;
            show_base_at_all(edit, &extent.paths)?;
            update_changed_dirs(edit, settled, false)?;
            let idle: HashSet<_> = extent.idle.iter().map(|idle| &idle.path).collect();
            for path in paths.iter().filter(|path| !idle.contains(path)) {
                record_given_up(edit, AuditProcedure::Discard, path.clone())?;
            }
            Ok(extent)
        })
        .await
    }

    /// Resets directories to the base's mode, owner and group; their entries stay. It is one
    /// change, synced before this returns.
    ///
    /// # Errors
    /// As [`Overlay::discard`].
    pub async fn discard_attributes(
        &self,
        caller: &Caller,
        dirs: Vec<MergedPath>,
    ) -> std::result::Result<(), FsError> {
        self.change_unlimited(caller, move |edit| {
            refuse_during_apply(edit)?;
            for dir in &dirs {
                reset_attributes(edit, dir)?;
                record_given_up(edit, AuditProcedure::Discard, dir.clone())?;
            }
            Ok(())
        })
        .await
    }

    /// Whether an apply to the base, of any session, has begun to change it and has not ended.
    pub fn has_unfinished_apply(&self) -> bool {
        self.core.base.has_unfinished_apply().unwrap_or(false)
    }

    pub(super) async fn change_unlimited<T: Send + 'static>(
        &self,
        caller: &Caller,
        mut f: impl FnMut(&mut Edit<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, FsError> {
        self.change_synced(caller, move |edit| {
            // It frees space, or follows the base: no quota refuses it.
            edit.is_unlimited = true;
            f(edit)
        })
        .await
    }

    /// Makes a change for a command, synced before this returns.
    pub(super) async fn change_synced<T: Send + 'static>(
        &self,
        caller: &Caller,
        mut f: impl FnMut(&mut Edit<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, FsError> {
        let change = self.change(caller, Cost::Offload, 0, true, move |edit| {
            let done = edit.check_writable().and_then(|()| f(edit));
            Outcome { result: done.map_err(|error| error.into_fs()), context: () }
        });
        change.await?.value.result
    }
}

/// Refuses a discard while an apply changes the base: at its end, the apply would take a
/// discarded object for one that a client removed, and hide the object that it wrote. An apply
/// writes its journal before it waits for earlier changes, so none starts between this and the
/// commit.
pub(super) fn refuse_during_apply(edit: &Edit<'_>) -> Result<()> {
    match edit.core.base.has_unfinished_apply()? {
        true => Err(FsError::TryLater.into()),
        false => Ok(()),
    }
}

/// Resets a directory to the base's mode, owner and group, and drops it if nothing differs
/// then.
fn reset_attributes(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    let Some(place) = visible_dir(edit, path)? else { return Ok(()) };
    let (Some(ino), Some(base)) = (place.ino, &place.base) else { return Ok(()) };
    let is_dir = |attr: &BaseAttr| attr.kind == FileKind::Directory;
    let Some(attr) = edit.view().base_attr_at(base)?.filter(is_dir) else { return Ok(()) };
    let mut row = edit.view().inode(ino)?;
    (row.mode, row.uid, row.gid) = (attr.mode, attr.uid, attr.gid);
    row.ctime = moved_on(row.ctime, edit.now);
    refresh_dir_origin(edit, &place, &mut row)?;
    edit.txn.put_inode(&row)?;
    edit.invalidate(Invalidation::All);
    match unchanged_dir_attr(edit, &place, &row, false)? {
        Some(_) => update_changed_dirs(edit, BTreeSet::from([path.clone()]), false),
        None => Ok(()),
    }
}

/// Makes the base show at these paths.
pub(super) fn show_base_at_all(edit: &mut Edit<'_>, paths: &[MergedPath]) -> Result<()> {
    let mut kept = BTreeSet::new();
    for path in paths {
        replace_marks_above(edit, path)?;
    }
    for path in paths {
        show_base_at(edit, path, &mut kept)?;
    }
    edit.invalidate(Invalidation::All);
    for path in paths {
        hide_elsewhere(edit, path)?;
    }
    let chosen: HashSet<_> = paths.iter().cloned().collect();
    part_files_from_base(edit, kept, &chosen)?;
    for path in paths {
        forget_originals_at(edit, path)?;
    }
    count_hidden_links(edit)?;
    hide_moved_out(edit)?;
    update_changed_dirs(edit, paths.iter().map(MergedPath::parent).collect(), false)
}

/// Makes the base show at one path; inodes with hard links elsewhere are added to `kept`.
fn show_base_at(edit: &mut Edit<'_>, path: &MergedPath, kept: &mut BTreeSet<Ino>) -> Result<()> {
    edit.txn.remove_whiteouts_below(path)?;
    let Some(name) = path.name() else {
        for (name, ino) in entries_of(edit, Ino::ROOT)? {
            drop_tree(edit, Ino::ROOT, &name, ino, kept)?;
        }
        return reset_root(edit);
    };
    edit.txn.remove_whiteout(path)?;
    if let Some(parent) = visible_dir(edit, &path.parent())?.and_then(|place| place.ino)
        && let Some(ino) = edit.txn.dentry(parent, &name)?
    {
        drop_tree(edit, parent, &name, ino, kept)?;
        // The next path must not use cached entries of these rows.
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

/// Replaces the marks of opaque directories above a path by whiteouts, so that the whiteout of
/// one name can be removed.
pub(super) fn replace_marks_above(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    if edit.txn.opaque_dirs()?.is_empty() {
        return Ok(());
    }
    let above: Vec<_> = path.above().collect();
    for above in above.iter().rev() {
        let Some(ino) = visible_dir(edit, above)?.and_then(|place| place.ino) else { break };
        let row = edit.view().inode(ino)?;
        replace_mark(edit, &row)?;
    }
    Ok(())
}

/// Hides the base object at a path again if the base directory shows elsewhere: it was moved
/// before the present directory was made.
fn hide_elsewhere(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    let Some(name) = path.name() else { return Ok(()) };
    if let Some(place) = visible_dir(edit, &path.parent())?
        && let (Some(ino), Some(base)) = (place.ino, &place.base)
        && !edit.shows(ino, base)?
        && edit.base_has(&place, &name)?
    {
        edit.txn.add_whiteout(path, edit.now)?;
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

fn reset_root(edit: &mut Edit<'_>) -> Result<()> {
    let mut row = edit.view().inode(Ino::ROOT)?;
    if let Some(attr) = edit.view().base_attr_at(&BasePath::root())? {
        (row.mode, row.uid, row.gid) = (attr.mode, attr.uid, attr.gid);
    }
    Ok(edit.txn.put_inode(&row)?)
}

/// Removes an entry with all below it; inodes that have, or may have, hard links elsewhere are
/// added to `kept`.
fn drop_tree(
    edit: &mut Edit<'_>,
    parent: Ino,
    name: &Name,
    ino: Ino,
    kept: &mut BTreeSet<Ino>,
) -> Result<()> {
    edit.txn.delete_dentry(parent, name)?;
    let mut open = vec![ino];
    while let Some(ino) = open.pop() {
        let Some(mut row) = edit.txn.inode(ino)?.filter(|row| row.ino != Ino::ROOT) else {
            continue;
        };
        if row.kind == FileKind::Directory {
            for (name, child) in entries_of(edit, ino)? {
                edit.txn.delete_dentry(ino, &name)?;
                open.push(child);
            }
            edit.txn.delete_inode(ino)?;
            continue;
        }
        match detect_new_links(edit, &mut row) {
            // The base shows none of its names to this user, so it shows no new ones either.
            Err(error) if error.is_denied() => {}
            found => drop(found?),
        }
        row.nlink = row.nlink.saturating_sub(1);
        row.ctime = moved_on(row.ctime, edit.now);
        if row.nlink > 0 || edit.view().base_links_left(&row)? > 0 {
            edit.txn.put_inode(&row)?;
            kept.insert(ino);
        } else {
            edit.txn.delete_inode(ino)?;
            kept.remove(&ino);
        }
    }
    Ok(())
}

/// Removes the origin of copied-up files that have names elsewhere, if a name of the origin
/// shows the base again: an object is in one layer. Finishes their copy-ups first. Other base
/// names, at which such a file showed without an entry, get one, with the original. Files
/// without a name are deleted.
fn part_files_from_base(
    edit: &mut Edit<'_>,
    mut kept: BTreeSet<Ino>,
    chosen: &HashSet<MergedPath>,
) -> Result<()> {
    kept.extend(edit.txn.copied_links()?);
    for ino in kept {
        let Some(mut row) = edit.txn.inode(ino)? else { continue };
        let Some(origin) = row.origin.clone() else { continue };
        let is_left = |path: &MergedPath| !is_in(path, chosen);
        let shows_again = base_shows_within(edit, (&row, &origin), chosen)?;
        if shows_again {
            for path in add_entries_at_base_names(edit, &mut row, &is_left)? {
                copy_original(edit, &origin.path, &path)?;
            }
        }
        if row.nlink == 0 && (shows_again || !adopt_base_name(edit, &mut row, &is_left)?) {
            edit.txn.delete_inode(ino)?;
            continue;
        }
        if !shows_again {
            edit.txn.put_inode(&row)?;
            continue;
        }
        while row.copy_up.is_some() {
            copy_up_background::copy_piece(edit.core, edit.txn, row)?;
            row = edit.view().inode(ino)?;
        }
        row.origin = None;
        edit.txn.put_inode(&row)?;
    }
    Ok(())
}

/// Whether the base object of a copied-up file shows at or below one of these paths, now or once
/// the base has it again. Not if the base has lost content that is not copied yet.
fn base_shows_within(
    edit: &Edit<'_>,
    (row, origin): (&InodeRow, &Origin),
    chosen: &HashSet<MergedPath>,
) -> Result<bool> {
    if row.copy_up.is_none()
        && edit.view().base_attr_at(&origin.path)?.is_none()
        && let Some(merged) = bare_place(edit, &origin.path)?
        && is_in(&merged, chosen)
    {
        return Ok(true);
    }
    for path in names_in_base(edit, origin.fileid, origin.nlink, &origin.path)? {
        if let Some(merged) = path_of_base_name(edit, &path)?
            && is_in(&merged, chosen)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Updates directories in which entries were dropped. A copied-up directory that no longer
/// differs from the base is removed; also one that the base lost, unless `is_applied`. Any other
/// gets a new ctime, and a new mtime unless the base now has the same entries (`is_applied`).
pub(super) fn update_changed_dirs(
    edit: &mut Edit<'_>,
    mut dirs: BTreeSet<MergedPath>,
    is_applied: bool,
) -> Result<()> {
    // A directory's path sorts before those of its entries, which are handled first.
    while let Some(path) = dirs.pop_last() {
        let Some(place) = visible_dir(edit, &path)? else { continue };
        let Some(ino) = place.ino else { continue };
        let mut row = edit.view().inode(ino)?;
        follow_base_attributes(edit, &place, &mut row)?;
        drop_idle_whiteouts(edit, &place)?;
        let base = unchanged_dir_attr(edit, &place, &row, is_applied)?;
        let is_idle = base.is_some() || (!is_applied && is_unchanged_lost_dir(edit, &place, &row)?);
        match (base, path.name()) {
            (_, Some(name)) if is_idle => {
                let (parent, _) = edit.txn.name_of(ino)?.ok_or(FsError::Stale)?;
                edit.txn.delete_dentry(parent, &name)?;
                edit.txn.delete_inode(ino)?;
                dirs.insert(path.parent());
            }
            (base, _) => {
                let shown = edit.view().attr(&Node::Delta(Box::new(row.clone())))?;
                row.ctime = moved_on(shown.ctime, edit.now);
                if is_applied {
                    refresh_dir_origin(edit, &place, &mut row)?;
                } else {
                    row.mtime = base.map_or(row.ctime, |base| base.mtime);
                }
                row.subdirs = edit.view().count_subdirs_or(&place, row.subdirs)?;
                edit.txn.put_inode(&row)?;
            }
        }
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

/// Updates a directory's origin to the base's ctime, which changed with applied entries, and to
/// its mode and owner; not if these differ, because another process may have set them.
pub(super) fn refresh_dir_origin(
    edit: &Edit<'_>,
    place: &DirPlace,
    row: &mut InodeRow,
) -> Result<()> {
    let Some((base, origin)) = place.base.as_ref().zip(row.origin.as_mut()) else {
        return Ok(());
    };
    let is_alike = |a: &BaseAttr| (a.mode, a.uid, a.gid) == (row.mode, row.uid, row.gid);
    if let Some(attr) = edit.view().base_attr_at(base)?.filter(is_alike)
        && (&origin.path, origin.fileid) == (base, attr.fileid)
    {
        origin.ctime = attr.ctime;
        origin.attributes = Some([attr.mode, attr.uid, attr.gid]);
    }
    Ok(())
}

/// Gives a copied-up directory the base's present mode, owner and group where the session set
/// none.
fn follow_base_attributes(edit: &Edit<'_>, place: &DirPlace, row: &mut InodeRow) -> Result<()> {
    let from = row.origin.as_ref().map(|origin| &origin.path);
    if let Some(base) = place.base.as_ref().filter(|base| from == Some(base))
        && let Some(attr) = edit.view().base_attr_at(base)?
        && attr.kind == FileKind::Directory
    {
        row.follow_base_attributes([attr.mode, attr.uid, attr.gid]);
    }
    Ok(())
}

/// The base's attributes of a directory whose row adds nothing to them. With `is_applied`,
/// another mtime is an addition: a client set it during the apply.
pub(super) fn unchanged_dir_attr(
    edit: &Edit<'_>,
    place: &DirPlace,
    row: &InodeRow,
    is_applied: bool,
) -> Result<Option<BaseAttr>> {
    let Some(base) = &place.base else { return Ok(None) };
    let is_copy = match &row.origin {
        Some(origin) => origin.path == *base && edit.txn.redirect(row.ino)?.is_none(),
        None => row.ino == Ino::ROOT,
    };
    if !is_copy || has_rows_in(edit, place, row)? {
        return Ok(None);
    }
    let attr = edit.view().base_attr_at(base)?;
    let same = |a: &BaseAttr| {
        (a.mode, a.uid, a.gid) == (row.mode, row.uid, row.gid)
            && (!is_applied || a.mtime == row.mtime)
    };
    Ok(attr.filter(same))
}

fn has_rows_in(edit: &Edit<'_>, place: &DirPlace, row: &InodeRow) -> Result<bool> {
    Ok(edit.txn.has_dentries(row.ino)? || !edit.txn.whiteouts_in(&place.merged)?.is_empty())
}

/// Whether the session changed nothing of a directory, at its place, that the base lost.
fn is_unchanged_lost_dir(edit: &Edit<'_>, place: &DirPlace, row: &InodeRow) -> Result<bool> {
    let Some(origin) = row.origin.as_ref().filter(|_| place.base_missing) else {
        return Ok(false);
    };
    Ok(origin.attributes == Some([row.mode, row.uid, row.gid])
        && edit.txn.redirect(row.ino)?.is_none()
        && recorded_dir(&edit.view(), row.ino)?.as_ref() == Some(&origin.path)
        && !has_rows_in(edit, place, row)?)
}

/// Removes whiteouts of names that the base does not have and that need not stay.
fn drop_idle_whiteouts(edit: &mut Edit<'_>, dir: &DirPlace) -> Result<()> {
    if dir.base_missing {
        // The base may get the directory again, with the names that are whited out in it.
        return Ok(());
    }
    for name in edit.txn.whiteouts_in(&dir.merged)? {
        let is_there = match edit.base_has(dir, &name) {
            Err(error) if error.is_denied() => true,
            is_there => is_there?,
        };
        let base = dir.base.as_ref().map(|base| base.join(&name));
        let stays = match base {
            _ if is_there => true,
            Some(base) => may_show_again(&*edit.txn, &base)?,
            None => false,
        };
        if !stays {
            edit.txn.remove_whiteout(&dir.merged.join(&name))?;
        }
    }
    Ok(())
}

pub(super) fn entries_of(edit: &Edit<'_>, dir: Ino) -> Result<Vec<(Name, Ino)>> {
    let mut entries = Vec::new();
    edit.txn.dentries(dir, &mut |name, ino, _, _| entries.push((name, ino)))?;
    Ok(entries)
}

pub(super) fn record_given_up(
    edit: &mut Edit<'_>,
    procedure: AuditProcedure,
    path: MergedPath,
) -> Result<()> {
    let found = match (TreeView { view: edit.view(), knows_base: true }.find(&path)) {
        Err(FsError::Access) => None,
        found => found?,
    };
    let fileid = found.map_or(FileId(0), |found| found.attr().fileid);
    edit.record(procedure, fileid, path, None, (None, None))
}
