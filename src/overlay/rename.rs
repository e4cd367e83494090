//! RENAME: a file moves with its dentry, a directory with everything that shows through it.
//!
//! A base directory moves in O(1): its new delta inode gets a redirect to the base directory, and
//! the old path a whiteout. Whiteouts are keyed by merged path, so whiteouts below the directory
//! are rewritten.

use crate::base::BasePath;
use crate::delta::{AuditProcedure, Ino, InodeRow, MAX_PATH_BYTES, MergedPath};
use crate::vfs::{FileKind, FsError, Locator, Name, Outcome, Wcc};

use super::access::{Want, check_sticky};
use super::cache::Invalidation;
use super::copy_up::{copy_up, dir_from_base, ensure_dir, make_opaque};
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::followed::settle;
use super::guarded::{Arrival, check_arrivals};
use super::limits::{MAX_MOVED_WHITEOUT_BYTES, MAX_MOVED_WHITEOUTS, check_moved_path};
use super::moved_out::recorded_dir;
use super::node::{Child, DirPlace, Node};
use super::readdir::{each_entry, has_entries};
use super::remove::{removable, unlink, unlink_dir};
use super::resolve::View;
use super::scope::check_unpinned;

/// RENAME; `validated` lists files whose content guards have accepted for their new paths.
pub(super) fn rename(
    edit: &mut Edit<'_>,
    from: (&Locator, &[u8]),
    to: (&Locator, &[u8]),
    validated: &[Arrival],
) -> Outcome<(), (Wcc, Wcc)> {
    let parents = edit.parent(from.0).and_then(|source| {
        let target = if from.0 == to.0 { source.clone() } else { edit.parent(to.0)? };
        Ok((source, target))
    });
    let (source, target) = match parents {
        Ok(parents) => parents,
        Err(error) => {
            let context = (edit.unchanged(from.0), edit.unchanged(to.0));
            return Outcome::err(error.into_fs(), context);
        }
    };
    let names = Name::new(from.1).and_then(|name| Ok((name, Name::new(to.1)?)));
    let result = match names {
        Ok((old, new)) => rename_in(edit, &source, &old, &target, &new, validated),
        Err(error) => Err(error.into()),
    };
    let result = result.map_err(|error| error.into_fs());
    let changed = result.is_ok();
    let context = (edit.wcc(from.0, source.attr, changed), edit.wcc(to.0, target.attr, changed));
    Outcome { result, context }
}

fn rename_in(
    edit: &mut Edit<'_>,
    source: &Parent,
    old: &Name,
    target: &Parent,
    new: &Name,
    validated: &[Arrival],
) -> Result<()> {
    edit.check_writable()?;
    if edit.already_applied().is_some() {
        return Ok(());
    }
    let child = removable(edit, source, old)?;
    Want::CHANGE_ENTRIES.check(edit.caller, &target.attr)?;
    let replaced = edit.view().child(&target.place, new)?;
    if let Some(replaced) = &replaced
        && replaced.node.locator() == child.node.locator()
    {
        // Hard links of one file: POSIX requires no effect. Compares locators, because file
        // numbers alone are ambiguous.
        return Ok(());
    }
    check_move(edit, source, target, &child, replaced.as_ref())?;
    let old_path = source.place.merged.join(old);
    let new_path = target.place.merged.join(new);
    check_moved_path(&old_path, &new_path)?;
    check_arrivals(edit, &child.node, &new_path, validated)?;

    let is_dir = child.node.is_dir();
    let source_ino = ensure_dir(edit, &source.place)?;
    let target_ino = ensure_dir(edit, &target.place)?;
    let replaces = replaced.is_some();
    match replaced {
        Some(replaced) if is_dir => unlink_dir(edit, &target.place, new, &replaced)?,
        Some(replaced) => unlink(edit, &target.place, new, replaced)?,
        None => {}
    }
    let row = if is_dir {
        move_dir(edit, source, old, target, target_ino, new, child)?
    } else {
        move_file(edit, source, source_ino, old, target, target_ino, new, child)?
    };
    let leaves = -i32::from(is_dir);
    let arrives = i32::from(is_dir && !replaces);
    if source_ino == target_ino {
        edit.entries_changed(source_ino, leaves + arrives)?;
    } else {
        edit.entries_changed(source_ino, leaves)?;
        edit.entries_changed(target_ino, arrives)?;
    }
    edit.record(AuditProcedure::Rename, row.fileid(), old_path, Some(new_path), (None, None))
}

/// Checks whether the entry may move and replace the existing target (rename(2)).
fn check_move(
    edit: &Edit<'_>,
    source: &Parent,
    target: &Parent,
    child: &Child,
    replaced: Option<&Child>,
) -> Result<()> {
    let view = edit.view();
    check_unpinned(edit, &child.node)?;
    if child.node.is_dir() && source.place.id() != target.place.id() {
        // Its `..` entry changes.
        Want::WRITE.check(edit.caller, &view.attr(&child.node)?)?;
        let moved = view.place(&child.node)?.merged.clone();
        if target.place.merged.is_within(&moved) {
            return Err(FsError::Invalid.into());
        }
    }
    let Some(replaced) = replaced else { return Ok(()) };
    check_unpinned(edit, &replaced.node)?;
    check_sticky(edit.caller, &target.attr, &view.attr(&replaced.node)?)?;
    match (child.node.is_dir(), replaced.node.is_dir()) {
        (true, false) => Err(FsError::NotDirectory.into()),
        (false, true) => Err(FsError::IsDirectory.into()),
        (true, true) if has_entries(&view, &*view.place(&replaced.node)?)? => {
            Err(FsError::NotEmpty.into())
        }
        _ => Ok(()),
    }
}

#[expect(clippy::too_many_arguments, reason = "two directories with their inodes and names")]
fn move_file(
    edit: &mut Edit<'_>,
    source: &Parent,
    source_ino: Ino,
    old: &Name,
    target: &Parent,
    target_ino: Ino,
    new: &Name,
    child: Child,
) -> Result<InodeRow> {
    let in_base = matches!(child.node, Node::Base { .. });
    let mut row = *copy_up(edit, child.node)?;
    row.ctime = moved_on(row.ctime, edit.now);
    if in_base || child.has_dentry {
        // Copy-up gave the base file a dentry at its base name, which is `old`.
        let (from, to) = (&*source.place, &*target.place);
        edit.move_entry((from, source_ino, old), (to, target_ino, new), &row)?;
    } else {
        edit.drop_entry(&source.place, None, old)?;
        if let Some(origin) = &row.origin {
            edit.txn.hide_link(origin.fileid, edit.now)?;
        }
        row.nlink += 1;
        edit.add_entry(&target.place, target_ino, new, &row)?;
    }
    edit.txn.put_inode(&row)?;
    Ok(row)
}

fn move_dir(
    edit: &mut Edit<'_>,
    source: &Parent,
    old: &Name,
    target: &Parent,
    target_ino: Ino,
    new: &Name,
    child: Child,
) -> Result<InodeRow> {
    let mut had_redirect = false;
    let (mut row, shown) = match child.node {
        Node::Delta(mut row) => {
            had_redirect = edit.txn.redirect(row.ino)?.is_some();
            let shown = base_dir_shown_by(edit, &mut row)?;
            (*row, shown)
        }
        Node::Base { path, .. } => (dir_from_base(edit, &path)?, Some(path)),
    };
    let old_path = source.place.merged.join(old);
    let new_path = target.place.merged.join(new);
    // Whiteouts inside a directory created in the delta refer to the base at the old path, so
    // they do not move. Earlier versions wrote them where opaque marks are used now.
    if is_created_in_session(&edit.view(), &row)? {
        for name in edit.txn.whiteouts_in(&old_path)? {
            edit.txn.remove_whiteout(&old_path.join(&name))?;
        }
    }
    let (from, to) = (&*source.place, &*target.place);
    let was_hidden = edit.txn.is_whited_out(&new_path)?;
    if shown.is_some() && !had_redirect && !edit.base_has(from, old)? {
        // The base may have the directory again, and it shows once.
        edit.txn.add_whiteout(&old_path, edit.now)?;
    }
    if let Some(source_ino) = from.ino.filter(|_| child.has_dentry) {
        edit.move_entry((from, source_ino, old), (to, target_ino, new), &row)?;
    } else {
        edit.drop_entry(from, None, old)?;
        edit.add_entry(to, target_ino, new, &row)?;
    }
    move_whiteouts(edit, &old_path, &new_path)?;
    row.ctime = moved_on(row.ctime, edit.now);
    edit.txn.put_inode(&row)?;
    show_through(edit, &row, shown.as_ref(), (target, target_ino), (new, was_hidden))?;
    edit.invalidate(Invalidation::AllPlaces);
    Ok(row)
}

/// Moves the whiteouts below a directory; [`FsError::CrossDevice`] if there are too many.
fn move_whiteouts(edit: &mut Edit<'_>, from: &MergedPath, to: &MergedPath) -> Result<()> {
    let below = edit.txn.whiteouts_below(from, MAX_MOVED_WHITEOUTS + 1)?;
    if below.rows == 0 {
        return Ok(());
    }
    if below.rows > MAX_MOVED_WHITEOUTS.into() || below.bytes > MAX_MOVED_WHITEOUT_BYTES {
        // The client then moves the entries one by one.
        return Err(FsError::CrossDevice.into());
    }
    let (from_bytes, to_bytes) = (from.as_bytes().len(), to.as_bytes().len());
    let longest = below.longest.saturating_add(to_bytes as u64);
    if to_bytes > from_bytes && longest.saturating_sub(from_bytes as u64) > MAX_PATH_BYTES as u64 {
        return Err(FsError::NameTooLong.into());
    }
    Ok(edit.txn.move_whiteouts_below(from, to)?)
}

/// The base directory that a delta directory shows after the move. A directory of another
/// implementation that shows none counts as created in the delta from now on.
fn base_dir_shown_by(edit: &mut Edit<'_>, row: &mut InodeRow) -> Result<Option<BasePath>> {
    if edit.txn.redirect(row.ino)?.is_some() && !edit.core.base.has_unfinished_apply()? {
        let moved = row.ino;
        settle(edit, &|ino, _| ino == moved)?;
        *row = edit.view().inode(moved)?;
    }
    if is_created_in_session(&edit.view(), row)? {
        pin_shown_dirs(edit, row.ino)?;
        return Ok(edit.txn.redirect(row.ino)?);
    }
    let place = edit.view().place_of_inode(row.ino, row.fileid())?;
    if let Some(base) = &place.base
        && edit.shows(row.ino, base)?
    {
        return Ok(Some(base.clone()));
    }
    if place.base_missing
        && let Some(origin) = &row.origin
        && recorded_dir(&edit.view(), row.ino)?.as_ref() == Some(&origin.path)
    {
        // The base no longer has it. If it comes back, it shows at the new path.
        return Ok(Some(origin.path.clone()));
    }
    if row.subdirs.is_none() {
        let alone = DirPlace { base: None, ..(*place).clone() };
        row.subdirs = Some(edit.view().count_subdirs(&alone)?);
    }
    Ok(None)
}

/// Before a directory created in the delta moves: adds redirects to it, or to directories
/// below, where a base directory shows only because of their path. Such base directories are
/// left by discard or apply, or appeared in the base later.
fn pin_shown_dirs(edit: &mut Edit<'_>, dir: Ino) -> Result<()> {
    let mut open = vec![dir];
    while let Some(ino) = open.pop() {
        let row = edit.view().inode(ino)?;
        if row.kind != FileKind::Directory || edit.txn.redirect(ino)?.is_some() {
            continue;
        }
        let place = edit.view().place_of_inode(ino, row.fileid())?;
        let Some(base) = &place.base else { continue };
        if edit.shows(ino, base)? && (row.origin.is_some() || shows_entries(edit, &place)?) {
            edit.txn.put_redirect(ino, base)?;
        } else {
            edit.txn.dentries(ino, &mut |_, child, _, _| open.push(child))?;
        }
    }
    Ok(())
}

/// Whether any base entry shows through a directory.
fn shows_entries(edit: &Edit<'_>, dir: &DirPlace) -> Result<bool> {
    let mut shows = false;
    each_entry(&edit.view(), dir, &mut |entry| shows |= entry.ino.is_none())?;
    Ok(shows)
}

/// Makes exactly `shown` show through a directory at its new path. If that `was_hidden`, the base
/// may have a directory there again.
fn show_through(
    edit: &mut Edit<'_>,
    row: &InodeRow,
    shown: Option<&BasePath>,
    (target, target_ino): (&Parent, Ino),
    (name, was_hidden): (&Name, bool),
) -> Result<()> {
    let implied = match &target.place.base {
        Some(base) => edit.view().base_dir_at(base.join(name))?,
        None => None,
    };
    match (shown, implied) {
        // The path alone implies no base directory for an inode without an origin, nor below a
        // directory created in the delta, which may move again.
        (Some(shown), Some(implied))
            if *shown == implied
                && row.origin.is_some()
                && !is_created_in_session(&edit.view(), &edit.view().inode(target_ino)?)? =>
        {
            Ok(edit.txn.remove_redirect(row.ino)?)
        }
        (Some(shown), _) => Ok(edit.txn.put_redirect(row.ino, shown)?),
        (None, Some(_)) => make_opaque(edit, row),
        (None, None) if was_hidden => make_opaque(edit, row),
        (None, None) if edit.view().is_opaque(row.ino)? => Ok(edit.txn.remove_opaque(row.ino)?),
        (None, None) => Ok(()),
    }
}

/// Whether a directory was created in the delta and never moved with base entries: only the
/// base directory at its current path can show through. (Directories of another implementation
/// may show base entries until their first change.)
pub(super) fn is_created_in_session(view: &View<'_>, row: &InodeRow) -> Result<bool> {
    let ours = row.ino != Ino::ROOT && row.origin.is_none() && row.subdirs.is_some();
    Ok(ours && view.txn.redirect(row.ino)?.is_none())
}
