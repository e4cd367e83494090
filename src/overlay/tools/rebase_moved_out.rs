//! Hides base directories that show at other paths at their own places, once the base has nothing
//! or a file in the place of a directory above them.
//!
//! Until then, the removal or the file in the session hides them there. The base may get the
//! directory again, and a base directory shows once (R1).

use crate::base::BasePath;
use crate::delta::{Ino, MergedPath};
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::vfs::FileKind;

/// Adds a whiteout where a moved base directory would show at its own path, at or below a path
/// whose rows this change has `dropped`.
pub(super) fn hide_moved_out(
    edit: &mut Edit<'_>,
    dropped: &dyn Fn(&MergedPath) -> bool,
) -> Result<()> {
    hide(edit, &|edit, place, base| {
        Ok(dropped(place) && edit.view().base_dir_at(base.clone())?.is_none())
    })
}

/// As [`hide_moved_out`], at or below a path that this change has `discarded`, whatever the base
/// has there: a move whose base directory is gone stays if only its old path is discarded.
pub(super) fn hide_moved_out_of_discarded(
    edit: &mut Edit<'_>,
    discarded: &dyn Fn(&MergedPath) -> bool,
) -> Result<()> {
    hide(edit, &|_, place, _| Ok(discarded(place)))
}

/// Whether a change bares a place, which has this base path.
type BaresPlace<'a> = dyn Fn(&Edit<'_>, &MergedPath, &BasePath) -> Result<bool> + 'a;

fn hide(edit: &mut Edit<'_>, bares: &BaresPlace<'_>) -> Result<()> {
    for ino in edit.txn.redirects()? {
        let Some(base) = edit.txn.redirect(ino)? else { continue };
        if let Some(place) = bared_place(edit, &base, bares)? {
            edit.txn.add_whiteout(&place, edit.now)?;
            edit.invalidate(Invalidation::All);
        }
    }
    Ok(())
}

/// The merged path of the base path `base`, if it is at or below a place that the change bares, and
/// nothing in the session hides it.
fn bared_place(
    edit: &Edit<'_>,
    base: &BasePath,
    bares: &BaresPlace<'_>,
) -> Result<Option<MergedPath>> {
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
    let mut is_bared = false;
    while let Some(name) = below.pop() {
        (place, above) = (place.join(&name), above.join(&name));
        if edit.txn.is_whited_out(&place)? {
            return Ok(None);
        }
        is_bared |= bares(edit, &place, &above)?;
        let Some(dir) = ino else { continue };
        ino = edit.txn.dentry(dir, &name)?;
        let Some(child) = ino else { continue };
        let is_dir = edit.view().inode(child)?.kind == FileKind::Directory;
        if !is_dir || edit.txn.redirect(child)?.is_some() || edit.view().is_opaque(child)? {
            return Ok(None);
        }
    }
    Ok((is_bared && ino.is_none()).then_some(place))
}
