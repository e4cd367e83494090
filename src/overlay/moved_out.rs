//! Base objects that the session moved out of a place: they must not show there too (R1), also if
//! the base loses the directory above them, and gets it again.

use crate::base::BasePath;
use crate::delta::{Ino, MergedPath, ReadTxn};
use crate::vfs::{FileKind, FsError, Name};

use super::cache::Invalidation;
use super::edit::Edit;
use super::error::Result;
use super::node::DirPlace;
use super::resolve::View;

/// Whether the session moved the base object at `name` in `dir`, or one below it, to another place.
pub(super) fn is_moved_out_of(view: &View<'_>, dir: &DirPlace, name: &Name) -> Result<bool> {
    let base = match &dir.base {
        // The path by the rows costs a walk to the root.
        None if dir.base_missing => recorded_path(view, dir, name)?,
        base => base.as_ref().map(|base| base.join(name)),
    };
    if let Some(path) = base
        && view.txn.has_copied_file_within(&path)?
    {
        return Ok(true);
    }
    if !view.txn.has_redirect_within(&BasePath::root())? {
        return Ok(false);
    }
    match recorded_path(view, dir, name)? {
        Some(path) => Ok(view.txn.has_redirect_within(&path)?),
        None => Ok(false),
    }
}

/// The base path of `name` in `dir`, by the rows above it alone: the base may lack the directory.
/// `None` if nothing of the base can show there.
pub(super) fn recorded_path(
    view: &View<'_>,
    dir: &DirPlace,
    name: &Name,
) -> Result<Option<BasePath>> {
    let dir = match dir.ino {
        Some(ino) => recorded_dir(view, ino)?,
        None => dir.base.clone(),
    };
    Ok(dir.map(|dir| dir.join(name)))
}

/// As [`recorded_path`], of the delta directory `ino` itself.
pub(super) fn recorded_dir(view: &View<'_>, ino: Ino) -> Result<Option<BasePath>> {
    let (mut at, mut names) = (ino, Vec::new());
    let top = loop {
        if at == Ino::ROOT {
            break BasePath::root();
        }
        if let Some(redirect) = view.txn.redirect(at)? {
            break redirect;
        }
        if view.is_opaque(at)? {
            return Ok(None);
        }
        let (parent, name) = view.txn.name_of(at)?.ok_or(FsError::Stale)?;
        names.push(name);
        at = parent;
    };
    Ok(Some(names.iter().rev().fold(top, |path, name| path.join(name))))
}

/// Whether a whiteout stays though the base no longer has the object at `path` that it hides. The
/// session moved that object, or something in it, or removed it with an original: the base may have
/// it again (another branch).
pub(super) fn may_show_again(txn: &dyn ReadTxn, path: &BasePath) -> Result<bool> {
    Ok(txn.has_redirect_within(path)?
        || txn.original(path)?.is_some()
        || txn.has_copied_file_within(path)?)
}

/// Adds a whiteout for each moved base directory that would show at its own place, now or once the
/// base has the directories above it again. For changes that drop rows of other directories.
pub(super) fn hide_moved_out(edit: &mut Edit<'_>) -> Result<()> {
    hide(edit, |_, _| Ok(true))
}

/// As [`hide_moved_out`], of directories that the base lost. The redirects of others may be an
/// apply's, which drops them in a later request.
pub(super) fn hide_lost_moved_out(edit: &mut Edit<'_>) -> Result<()> {
    hide(edit, |view, base| match view.base_dir_at(base.clone()) {
        // A directory that the base denies access to is there.
        Err(error) if error.is_denied() => Ok(false),
        found => Ok(found?.is_none()),
    })
}

fn hide(
    edit: &mut Edit<'_>,
    is_hidden: impl Fn(&View<'_>, &BasePath) -> Result<bool>,
) -> Result<()> {
    for ino in edit.txn.redirects()? {
        let Some(base) = edit.txn.redirect(ino)? else { continue };
        if is_hidden(&edit.view(), &base)?
            && let Some(place) = bare_place(edit, &base)?
        {
            edit.txn.add_whiteout(&place, edit.now)?;
            edit.invalidate(Invalidation::All);
        }
    }
    Ok(())
}

/// The merged path of the base path `base`, if nothing in the session hides it there, now or once
/// the base has it again.
pub(super) fn bare_place(edit: &Edit<'_>, base: &BasePath) -> Result<Option<MergedPath>> {
    let Some((mut above, name)) = base.split() else { return Ok(None) };
    let mut below = vec![name];
    let (mut place, mut ino) = loop {
        if let Some(ino) = edit.txn.redirected_to(&above)? {
            let shown = edit.view().inode(ino)?.fileid();
            break (edit.view().place_of_inode(ino, shown)?.merged.clone(), Some(ino));
        }
        let Some((parent, name)) = above.split() else {
            break (MergedPath::root(), Some(Ino::ROOT));
        };
        below.push(name);
        above = parent;
    };
    while let Some(name) = below.pop() {
        place = place.join(&name);
        if edit.txn.is_whited_out(&place)? {
            return Ok(None);
        }
        let Some(dir) = ino else { continue };
        ino = edit.txn.dentry(dir, &name)?;
        let Some(child) = ino else { continue };
        let is_dir = edit.view().inode(child)?.kind == FileKind::Directory;
        if !is_dir || edit.txn.redirect(child)?.is_some() || edit.view().is_opaque(child)? {
            return Ok(None);
        }
    }
    Ok(ino.is_none().then_some(place))
}
