//! Removes session rows whose content the base now has.
//!
//! `rebase` removes a row only if the base has the same object, and a directory only without
//! entries. Changes that a client made since the plan stay: an object with another number or ctime
//! is kept; a name that the client removed or moved is hidden if the base got it; a redirect or
//! origin in a base directory that moved gets the new path, wherever it shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{AuditProcedure, InodeRow, MergedPath, Origin};
use crate::vfs::{Caller, FileId, FileKind, FsError, Name, Time};

use super::discard::{record_given_up, replace_marks_above, update_changed_dirs};
use super::rebase_links::{is_as_applied, move_to_other_names};
use super::rebase_moves::{
    AppliedMoves, base_bytes, follow_moves, update_origins_below, update_origins_outside,
};
use super::rebase_originals::follow_originals;
use super::tree::{TreeView, visible_dir};
use crate::overlay::Overlay;
use crate::overlay::base_names::{
    adopt_base_name, count_hidden_links, detect_new_links, has_other_names, refresh_origin_ctime,
};
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::{ensure_dir, make_opaque, origin_of, replace_mark};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::followed::settle;
use crate::overlay::moved_out::hide_lost_moved_out;
use crate::overlay::node::{DirPlace, is_linked};
use crate::overlay::original::{forget_originals, renumber_original};
use crate::overlay::remove::unlink;

/// A path that `apply` wrote to the base, and the session object it replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebaseItem {
    /// Path in the merged tree; of a removed object, the path that it had.
    pub path: MergedPath,
    /// Old path in the base, if it moved.
    pub from: Option<MergedPath>,
    /// Number and ctime of the session's object; one with others stays. `None` if it is removed.
    pub object: Option<(FileId, Time)>,
    /// The session had an entry there. If the base shows there now, a client removed that entry,
    /// and the name is hidden. Must be false if an earlier request removed the rows.
    pub was_entry: bool,
    /// ctime of the base object after `apply`; `None` if it is unknown.
    pub base_ctime: Option<Time>,
    /// The base file had further hard links before `apply`.
    pub was_linked: bool,
    /// Mode, owner and group that `apply` was to give a directory, if something else set others
    /// during it: the directory keeps those.
    pub not_given: Option<[u32; 3]>,
    /// What of the object `apply` merged with the base's own changes.
    pub merged: MergedParts,
}

/// The parts of a base object in which an apply kept the base's own changes: there the object is
/// not what the session had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergedParts {
    /// Content.
    pub content: bool,
    /// Mode, owner and group.
    pub attributes: [bool; 3],
    /// Last change of content.
    pub mtime: bool,
}

impl Overlay {
    /// Removes the rows of applied objects that have not changed since and that the base has, so
    /// that the base shows there. Returns the paths of objects that changed and stay. It is one
    /// change, synced before this returns.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    pub async fn rebase(
        &self,
        caller: &Caller,
        applied: Vec<RebaseItem>,
    ) -> std::result::Result<Vec<MergedPath>, FsError> {
        self.core.base.invalidate();
        self.change_unlimited(caller, move |edit| {
            let moves = AppliedMoves::of(&applied);
            let settled = settle_above(edit, &applied, &moves)?;
            let moved = follow_moves(edit, &applied, &moves)?;
            let applied = as_named_now(edit, &applied)?;
            let kept = drop_applied_rows(edit, &applied, (&moves, moved), settled)?;
            for applied in &applied {
                record_given_up(edit, AuditProcedure::Apply, applied.path.clone())?;
            }
            Ok(kept)
        })
        .await
    }
}

/// Records the present base paths of the directories above applied objects that the base moved
/// itself, as the session did. What the apply moved is in `moves`, or in a later request.
fn settle_above(
    edit: &mut Edit<'_>,
    applied: &[RebaseItem],
    moves: &AppliedMoves,
) -> Result<BTreeSet<MergedPath>> {
    let paths: BTreeSet<_> = applied.iter().map(|applied| applied.path.clone()).collect();
    let mut above = BTreeSet::new();
    for ino in edit.txn.redirects()? {
        let place = edit.view().place_of_inode(ino, edit.view().shown(ino)?);
        // A directory without a path is not visible.
        let Ok(place) = place else { continue };
        let dir = &place.merged;
        if paths.contains(dir) || dir.first_below(&paths).is_some() {
            above.insert(ino);
        }
    }
    settle(edit, &|ino, path| above.contains(&ino) && moves.follow(path).is_none())
}

/// Removes the rows of unchanged objects that the base has. Returns the paths of objects that
/// changed since they were applied, which stay. The redirects of the directories in `moved` have
/// their new paths.
fn drop_applied_rows(
    edit: &mut Edit<'_>,
    applied: &[RebaseItem],
    (moves, mut moved): (&AppliedMoves, Vec<(BasePath, BasePath)>),
    mut dirs: BTreeSet<MergedPath>,
) -> Result<Vec<MergedPath>> {
    let has_moved_dirs = !moved.is_empty();
    // Compares all first: the removal of one name changes the inode of the others.
    let (mut paths, mut kept) = (BTreeMap::new(), BTreeMap::new());
    for applied in applied {
        match change_since_applied(edit, applied)? {
            Since::Same => drop(paths.insert(&applied.path, applied)),
            Since::Changed => drop(kept.insert(&applied.path, applied)),
        }
    }
    for applied in kept.values().filter(|applied| applied.was_entry) {
        hide_again(edit, applied)?;
        advance_whiteout(edit, applied)?;
    }
    // A directory before its entries: their base paths depend on it.
    for (path, applied) in &paths {
        replace_marks_above(edit, path)?;
        dirs.insert(path.parent());
        let Some(name) = path.name() else { continue };
        let Some(place) = visible_dir(edit, &path.parent())? else { continue };
        let keeps = |path: &MergedPath| !paths.contains_key(path);
        if drop_applied_row(edit, &place, (&name, applied), &keeps)? {
            dirs.insert((*path).clone());
        }
    }
    for dir in dirs.clone() {
        update_origins_below(edit, &dir, moves, (&mut dirs, &mut moved))?;
    }
    if has_moved_dirs {
        update_origins_outside(edit, moves, &mut moved)?;
    }
    for from in applied.iter().filter_map(|applied| applied.from.as_ref()) {
        dirs.insert(from.parent());
    }
    follow_originals(edit, applied, &kept, moved)?;
    for applied in kept.values() {
        keep_number_of_moved(edit, applied)?;
    }
    edit.invalidate(Invalidation::All);
    count_hidden_links(edit)?;
    update_changed_dirs(edit, dirs, true)?;
    hide_lost_moved_out(edit)?;
    Ok(kept.into_keys().cloned().collect())
}

/// The items with their current paths: a client may have moved a directory above since.
pub(super) fn as_named_now(edit: &Edit<'_>, applied: &[RebaseItem]) -> Result<Vec<RebaseItem>> {
    applied.iter().map(|applied| named_now(edit, applied)).collect()
}

/// One item with its current path.
pub(super) fn named_now(edit: &Edit<'_>, applied: &RebaseItem) -> Result<RebaseItem> {
    let above = BasePath::from_bytes(base_bytes(&applied.path.parent()));
    let place = match above {
        Some(above) => edit.view().place_of_base(&above)?,
        None => None,
    };
    let path = place.zip(applied.path.name()).map(|(dir, name)| dir.merged.join(&name));
    let path = path.unwrap_or_else(|| applied.path.clone());
    Ok(RebaseItem { path, ..applied.clone() })
}

/// Gives the original of a file that a client moved during apply the number of the file. The base
/// has a new file at the old path, with another number: by the original, it is known as the file
/// that was moved away, and not as one that was deleted.
fn keep_number_of_moved(edit: &mut Edit<'_>, applied: &RebaseItem) -> Result<()> {
    let (Some((id, _)), Some(name)) = (applied.object, applied.path.name()) else { return Ok(()) };
    let place = visible_dir(edit, &applied.path.parent())?;
    for ino in edit.txn.copied_up(id)? {
        let here = match place.as_ref().and_then(|place| place.ino) {
            Some(parent) => edit.txn.dentry(parent, &name)?,
            None => None,
        };
        let row = edit.view().inode(ino)?;
        if let Some(origin) = row.origin.filter(|_| here != Some(ino))
            && row.kind != FileKind::Directory
        {
            renumber_original(edit, &origin.path, id)?;
        }
    }
    Ok(())
}

/// Hides the base's new object at a path from which a client removed the session's entry.
pub(super) fn hide_again(edit: &mut Edit<'_>, applied: &RebaseItem) -> Result<()> {
    let path = &applied.path;
    let Some(name) = path.name() else { return Ok(()) };
    let Some(place) = visible_dir(edit, &path.parent())? else { return Ok(()) };
    let Some(child) = edit.view().child(&place, &name)? else { return Ok(()) };
    let is_other = applied.object.is_none_or(|(id, _)| id != child.node.fileid());
    if !child.has_dentry {
        ensure_dir(edit, &place)?;
        // `place` is outdated: `ensure_dir` may have added the directory's row.
        let place = visible_dir(edit, &path.parent())?.ok_or(FsError::Stale)?;
        let removed = edit.removed.len();
        match child.node.is_dir() {
            true => edit.drop_entry(&place, None, &name)?,
            false => unlink(edit, &place, &name, child)?,
        }
        // The client removed what the session had, and did not see the base's new object.
        edit.removed.truncate(removed);
        edit.invalidate(Invalidation::All);
    } else if let (true, Some(row)) = (is_other, child.node.row())
        && row.kind == FileKind::Directory
        && row.origin.is_none()
        && edit.txn.redirect(row.ino)?.is_none()
        && let Some(base) = &place.base
        && edit.view().base_dir_at(base.join(&name))?.is_some()
    {
        // A client made a new directory there, which must hide the base's.
        let row = row.clone();
        make_opaque(edit, &row)?;
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}

/// Sets the time of a whiteout that a client made during apply to at least the ctime of the
/// base object after apply, if the object still has that. Otherwise the next apply would take
/// this one's later steps for a change of the host.
pub(super) fn advance_whiteout(edit: &mut Edit<'_>, applied: &RebaseItem) -> Result<()> {
    let path = &applied.path;
    let (Some(ctime), Some(name)) = (applied.base_ctime, path.name()) else { return Ok(()) };
    if !edit.txn.is_whited_out(path)? {
        return Ok(());
    }
    let Some(place) = visible_dir(edit, &path.parent())? else { return Ok(()) };
    let Some(base) = &place.base else { return Ok(()) };
    let now = edit.view().base_attr_at(&base.join(&name))?;
    if now.is_some_and(|attr| attr.ctime == ctime) {
        edit.txn.add_whiteout(path, ctime.max(edit.now))?;
    }
    Ok(())
}

/// Gives an applied directory the base's mtime, unless the session set another one.
fn follow_applied_time(row: &mut InodeRow, attr: &BaseAttr) {
    // The session did not set its time, or the base's is later than what the session did.
    let is_set = row.origin.as_ref().is_none_or(|origin| origin.mtime != row.mtime);
    if !is_set || attr.mtime > row.ctime {
        row.mtime = attr.mtime;
    }
    if let Some(origin) = &mut row.origin {
        origin.mtime = attr.mtime;
    }
}

/// Makes an applied directory's origin the base's directory, and gives it the base's mode and owner
/// where the session has no others. Of an attribute that something else set during the apply, the
/// origin has what the apply was to set, and of one that the base had changed before, what it had:
/// what a client set since differs from both, and is drift.
fn follow_applied_attributes(
    row: &mut InodeRow,
    (base, attr): (BasePath, &BaseAttr),
    applied: &RebaseItem,
) {
    let now = [attr.mode, attr.uid, attr.gid];
    row.follow_base_attributes(now);
    let own = [row.mode, row.uid, row.gid];
    let mut known = applied.not_given.unwrap_or(now);
    if let Some(was) = row.origin.as_ref().and_then(|origin| origin.attributes) {
        for ((known, was), is_merged) in known.iter_mut().zip(was).zip(applied.merged.attributes) {
            if is_merged {
                *known = was;
            }
        }
    }
    for ((known, own), now) in known.iter_mut().zip(own).zip(now) {
        if own == now {
            *known = now;
        }
    }
    row.origin = Some(Origin { attributes: Some(known), ..origin_of(base, attr) });
    row.follow_base_attributes(now);
}

/// Updates a session file whose base file stays, with other names.
fn follow_base_file(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    attr: &BaseAttr,
    merged: MergedParts,
) -> Result<()> {
    detect_new_links(edit, row)?;
    refresh_origin_ctime(row, attr);
    follow_merged_attributes(row, attr, merged);
    Ok(())
}

/// Gives a session file the attributes of the base file in which the base's own changes were kept.
fn follow_merged_attributes(row: &mut InodeRow, attr: &BaseAttr, merged: MergedParts) {
    let [_, has_owner, has_group] = merged.attributes;
    if has_owner {
        row.uid = attr.uid;
    }
    if has_group {
        row.gid = attr.gid;
    }
}

/// Whether an object changed since it was applied.
fn change_since_applied(edit: &Edit<'_>, applied: &RebaseItem) -> Result<Since> {
    let found = TreeView { view: edit.view(), knows_base: true }.find(&applied.path)?;
    Ok(match (found, applied.object) {
        (None, None) => Since::Same,
        (Some(found), Some((id, ctime))) => {
            let attr = found.attr();
            let is_base = found.row().is_none();
            // A directory's entries are compared by themselves, and change its ctime.
            let is_dir = attr.kind == FileKind::Directory;
            let is_same = attr.fileid == id && (is_dir || attr.ctime == ctime);
            // A directory that did not move may show the base since an earlier request.
            let may_be_base = !applied.was_entry || (is_dir && applied.from.is_none());
            match (is_same, is_base) {
                (true, false) => Since::Same,
                (true, true) if may_be_base => Since::Same,
                // Only the base had the name, and has another object there.
                (false, true) if !applied.was_entry => Since::Same,
                _ => Since::Changed,
            }
        }
        (Some(found), None) if found.row().is_none() => Since::Same,
        _ => Since::Changed,
    })
}

/// Removes the row of one name; returns whether it is a directory that the base now has, whose
/// row stays. Of the base file's further names, if it had some, those that `keeps` accepts keep the
/// session's file: it gets entries there.
fn drop_applied_row(
    edit: &mut Edit<'_>,
    dir: &DirPlace,
    (name, applied): (&Name, &RebaseItem),
    keeps: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    let path = dir.merged.join(name);
    let there = match &dir.base {
        Some(base) => {
            let base = base.join(name);
            edit.view().base_attr_at(&base)?.map(|attr| (base, attr))
        }
        None => None,
    };
    let entry = match dir.ino {
        Some(parent) => edit.txn.dentry(parent, name)?.map(|ino| (parent, ino)),
        None => None,
    };
    let Some((parent, ino)) = entry else {
        if there.is_none() {
            edit.txn.remove_whiteout(&path)?;
            edit.txn.remove_whiteouts_below(&path)?;
        }
        return Ok(false);
    };
    let mut row = edit.view().inode(ino)?;
    let Some((base, attr)) = there.filter(|(_, attr)| attr.kind == row.kind) else {
        return Ok(false);
    };
    if row.kind == FileKind::Directory {
        replace_mark(edit, &row)?;
        edit.txn.remove_redirect(ino)?;
        follow_applied_time(&mut row, &attr);
        // Not if another directory was put there: its entries are as unknown as before.
        let is_other = |known: &Origin| known.path == base && known.fileid != attr.fileid;
        if !row.origin.as_ref().is_some_and(is_other) {
            follow_applied_attributes(&mut row, (base, &attr), applied);
        }
        edit.txn.put_inode(&row)?;
        edit.invalidate(Invalidation::All);
        return Ok(true);
    }
    let is_alone = !applied.was_linked && !is_linked(attr.kind, attr.nlink);
    if is_alone
        && has_other_names(edit, &row, &path, keeps)?
        && is_as_applied(edit, &row, &path, (&base, &attr))?
    {
        // The other names become further hard links of the base file.
        row.origin = Some(origin_of(base, &attr));
        follow_merged_attributes(&mut row, &attr, applied.merged);
        edit.txn.put_inode(&row)?;
        edit.invalidate(Invalidation::All);
        return Ok(false);
    }
    if let Some(origin) = row.origin.as_ref().filter(|origin| origin.path != base)
        && edit.view().base_attr_at(&origin.path)?.is_none()
    {
        forget_originals(edit, &origin.path)?;
    }
    edit.txn.delete_dentry(parent, name)?;
    // The ctime stays: later requests compare it for the file's other names.
    row.nlink = row.nlink.saturating_sub(1);
    // Its other base names show the applied content too, if they are still one file.
    let is_one = row.origin.as_ref().is_some_and(|origin| origin.fileid == attr.fileid);
    if row.nlink > 0 && is_one {
        follow_base_file(edit, &mut row, &attr, applied.merged)?;
    }
    if !is_one && applied.was_linked {
        move_to_other_names(edit, &mut row, &base, keeps)?;
    }
    let is_from_here = row.origin.as_ref().is_some_and(|origin| origin.path == base);
    if !is_one && is_from_here && row.copy_up.is_none() && !is_linked(attr.kind, attr.nlink) {
        // The base file is another one now, and that of no other name: the file is a new one.
        row.origin = None;
    }
    if row.nlink > 0 || (!is_one && adopt_base_name(edit, &mut row, keeps)?) {
        edit.txn.put_inode(&row)?;
    } else {
        edit.txn.delete_inode(ino)?;
    }
    Ok(false)
}

/// The state of an object since it was applied.
enum Since {
    /// Unchanged, or the base already shows there.
    Same,
    /// A client changed or removed it.
    Changed,
}
