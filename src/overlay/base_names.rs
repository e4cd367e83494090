//! Hard links of base files: which names exist, and how many the session hides.
//!
//! A base name without an entry shows the copied-up file while the base file has several names. The
//! last of these names shows the base file. So a copied-up file that lost its entries needs one
//! entry, because every inode needs one (specification 0.4, filesystem rule 8):
//! [`adopt_base_name`]. It needs an entry at each name if it parts from its base file, or if
//! `apply` replaced one of the names: [`add_entries_at_base_names`].

use std::sync::Arc;

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath};
use crate::vfs::{FileId, FileKind, Name, Time};

use super::cache::Invalidation;
use super::copy_up::ensure_dir;
use super::edit::Edit;
use super::error::Result;
use super::node::{Child, DirPlace, is_linked};
use super::resolve::View;

/// The base file of a copied-up file, if it had one name at copy-up and has several now. These
/// show the copied-up file, and its row does not count them.
pub(super) fn newly_linked(view: &View<'_>, row: &InodeRow) -> Result<Option<BaseAttr>> {
    let single = row.origin.as_ref().filter(|origin| !is_linked(row.kind, origin.nlink));
    let Some(origin) = single else { return Ok(None) };
    let is_it = |attr: &BaseAttr| attr.fileid == origin.fileid && attr.kind == row.kind;
    let there = view.base_attr_at(&origin.path)?.filter(is_it);
    Ok(there.filter(|attr| is_linked(attr.kind, attr.nlink)))
}

/// The number of names that the base file of a copied-up file got since the copy-up.
pub(super) fn new_names(view: &View<'_>, row: &InodeRow) -> Result<u32> {
    let copied = row.origin.as_ref().filter(|_| row.kind != FileKind::Directory);
    let Some(origin) = copied else { return Ok(0) };
    let is_it = |attr: &BaseAttr| attr.fileid == origin.fileid && attr.kind == row.kind;
    let there = view.base_attr_at(&origin.path)?.filter(is_it);
    Ok(there.map_or(0, |attr| attr.nlink.saturating_sub(origin.nlink.max(1))))
}

/// The directory of a base path, if the path shows the copied-up file `ino` without an entry.
fn place_showing(
    view: &View<'_>,
    path: &BasePath,
    ino: Ino,
    is_fit: &dyn Fn(&MergedPath) -> bool,
) -> Result<Option<Arc<DirPlace>>> {
    let Some((above, name)) = path.split() else { return Ok(None) };
    let Some(place) = view.place_of_base(&above)? else { return Ok(None) };
    if !is_fit(&place.merged.join(&name)) {
        return Ok(None);
    }
    let shows = view.child(&place, &name)?;
    let is_it = |c: &Child| !c.has_dentry && c.node.row().is_some_and(|row| row.ino == ino);
    Ok(shows.filter(is_it).map(|_| place))
}

/// The copied-up files that [`newly_linked`] tells of. Looks at the base file of each
/// copied-up file that had one name.
pub(super) fn newly_linked_copies(view: &View<'_>) -> Result<Vec<Ino>> {
    let mut linked = Vec::new();
    for ino in view.txn.copied_single_names()? {
        if newly_linked(view, &view.inode(ino)?)?.is_some() {
            linked.push(ino);
        }
    }
    Ok(linked)
}

/// Updates a copied-up file whose base file had one name at copy-up and has several now:
/// records the new link count and counts the hidden names. Returns whether it did.
///
/// Does nothing if several copies claim the same base file (invariant O2).
pub(super) fn detect_new_links(edit: &mut Edit<'_>, row: &mut InodeRow) -> Result<bool> {
    let Some(attr) = newly_linked(&edit.view(), row)? else { return Ok(false) };
    if edit.txn.copied_up(attr.fileid)?.len() > 1 {
        return Ok(false);
    }
    if let Some(origin) = row.origin.as_mut() {
        origin.nlink = attr.nlink;
    }
    edit.txn.hide_link(attr.fileid, row.ctime)?;
    count_hidden_links_of(edit, attr.fileid)?;
    Ok(true)
}

/// Updates the origin's ctime after the base file got another name, if its content is
/// unchanged.
pub(super) fn refresh_origin_ctime(row: &mut InodeRow, attr: &BaseAttr) {
    if let Some(origin) = row.origin.as_mut()
        && (origin.size, origin.mtime) == (attr.size, attr.mtime)
    {
        origin.ctime = attr.ctime;
    }
}

/// Whether a file, all in the session, has names besides `path` and the one that it was copied
/// up from, which `keeps` accepts.
pub(super) fn has_other_names(
    edit: &Edit<'_>,
    row: &InodeRow,
    path: &MergedPath,
    keeps: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    if row.nlink < 2 || row.copy_up.is_some() {
        return Ok(false);
    }
    for (dir, name) in edit.txn.names_of(row.ino)? {
        let place = edit.view().place_of_inode(dir, edit.view().shown(dir)?)?;
        let lost = match place.base_missing {
            true => edit.view().inode(dir)?.origin.map(|origin| origin.path),
            false => None,
        };
        let base = place.base.as_ref().or(lost.as_ref()).map(|base| base.join(&name));
        let other = place.merged.join(&name);
        let is_own = base.is_some() && row.origin.as_ref().map(|o| &o.path) == base.as_ref();
        if other != *path && !is_own && keeps(&other) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The current names of a base object. A file with several names needs a search of the base.
pub(super) fn names_in_base(
    edit: &Edit<'_>,
    id: FileId,
    nlink: u32,
    path: &BasePath,
) -> Result<Vec<BasePath>> {
    if nlink <= 1 {
        let there = edit.view().base_attr_at(path)?.filter(|attr| attr.fileid == id);
        return Ok(there.map(|_| path.clone()).into_iter().collect());
    }
    let mut names = Vec::new();
    edit.core.base.find_linked(id, &mut |path| {
        names.push(path.clone());
        false
    })?;
    Ok(names)
}

/// The merged path at which a base name shows, if the session does not cover it.
pub(super) fn path_of_base_name(edit: &Edit<'_>, path: &BasePath) -> Result<Option<MergedPath>> {
    let shown = edit.view().shown_name(path)?;
    Ok(shown.map(|(place, name)| place.merged.join(&name)))
}

/// Gives a copied-up file without entries one at the first base name that shows it and that
/// `is_fit` accepts; returns whether it did. The caller stores the row.
///
/// Searches the whole base. Happens only for a hard-linked base file that was changed through
/// one name and then lost that name.
pub(super) fn adopt_base_name(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    is_fit: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    if edit.view().base_links_left(row)? == 0 {
        return Ok(false);
    }
    let Some(origin) = row.origin.clone() else { return Ok(false) };
    let base = edit.core.base.clone();
    let mut shown_in = Ok(None);
    let path = base.find_linked(origin.fileid, &mut |path| {
        shown_in = place_showing(&edit.view(), path, row.ino, is_fit);
        !matches!(shown_in, Ok(None))
    })?;
    let (Some(place), Some((_, name))) = (shown_in?, path.and_then(|path| path.split())) else {
        return Ok(false);
    };
    add_entry_at_base_name(edit, row, (&place, &name), row.ctime)?;
    Ok(true)
}

/// Gives a copied-up file an entry at each base name at which its base file shows and that
/// `is_fit` accepts. Returns these names. The row must be stored; searches the whole base.
pub(super) fn add_entries_at_base_names(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    is_fit: &dyn Fn(&MergedPath) -> bool,
) -> Result<Vec<BasePath>> {
    let Some(origin) = row.origin.clone() else { return Ok(Vec::new()) };
    let mut added = Vec::new();
    for path in names_in_base(edit, origin.fileid, origin.nlink, &origin.path)? {
        let Some((place, name)) = edit.view().shown_name(&path)? else { continue };
        if is_fit(&place.merged.join(&name)) {
            add_entry_at_base_name(edit, row, (&place, &name), row.ctime)?;
            added.push(path);
        }
    }
    edit.txn.put_inode(row)?;
    edit.invalidate(Invalidation::All);
    Ok(added)
}

/// Gives a copied-up file an entry at a base name. `since` becomes the ctime of the names that
/// only the base has. The caller stores the row.
pub(super) fn add_entry_at_base_name(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    (place, name): (&DirPlace, &Name),
    since: Time,
) -> Result<()> {
    let parent = ensure_dir(edit, place)?;
    edit.txn.insert_dentry(parent, name, row.ino)?;
    edit.touch_child(place.id(), name);
    if let Some(origin) = &row.origin {
        edit.txn.hide_link(origin.fileid, since)?;
    }
    row.nlink = row.nlink.saturating_add(1);
    Ok(())
}

/// Recounts the hidden names of all base files (invariant L1).
pub(super) fn count_hidden_links(edit: &mut Edit<'_>) -> Result<()> {
    for base in edit.txn.hidden_files()? {
        count_hidden_links_of(edit, base)?;
    }
    Ok(())
}

/// Recounts the hidden names of one base file.
fn count_hidden_links_of(edit: &mut Edit<'_>, base: FileId) -> Result<()> {
    let mut hidden = 0;
    for path in names_in_base(edit, base, u32::MAX, &BasePath::root())? {
        hidden += u32::from(path_of_base_name(edit, &path)?.is_none());
    }
    Ok(edit.txn.count_hidden(base, hidden)?)
}
