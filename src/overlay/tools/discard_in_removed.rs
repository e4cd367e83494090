//! Drops the removal of single objects in a directory that the session removed whole: the directory
//! shows again with these alone, and the removal of its other entries stays.

use std::collections::BTreeSet;

use crate::delta::{AuditProcedure, MergedPath};
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::{add_whiteouts_of, ensure_dir};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::vfs::{Caller, FileKind, FsError, Time};

use super::discard::{record_given_up, refuse_during_apply, show_base_at_all};
use super::tree::visible_dir;

impl Overlay {
    /// Makes the base show at `paths`, in directories that the session removed. It is one change,
    /// synced before this returns.
    ///
    /// # Errors
    /// As [`Overlay::discard`]. [`FsError::NotFound`] if a directory above a path is not a base
    /// directory that the session removed from its place.
    pub async fn discard_in_removed(
        &self,
        caller: &Caller,
        paths: Vec<MergedPath>,
    ) -> std::result::Result<(), FsError> {
        self.change_unlimited(caller, move |edit| {
            refuse_during_apply(edit)?;
            for path in &paths {
                show_dirs_above(edit, path)?;
            }
            show_base_at_all(edit, &outermost(&paths))?;
            for path in &paths {
                record_given_up(edit, AuditProcedure::Discard, path.clone())?;
            }
            Ok(())
        })
        .await
    }
}

/// The paths that are below no other one.
fn outermost(paths: &[MergedPath]) -> Vec<MergedPath> {
    let all: BTreeSet<_> = paths.iter().collect();
    let is_outermost = |path: &&MergedPath| !path.above().any(|above| all.contains(&above));
    all.iter().copied().filter(is_outermost).cloned().collect()
}

/// Makes the removed directories above a path show, with a whiteout for each entry in the place of
/// the one for all. The whiteouts keep the time of the removal, by which drift is found.
fn show_dirs_above(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    let above: Vec<_> = path.above().collect();
    for dir in above.iter().rev() {
        if visible_dir(edit, dir)?.is_some() {
            continue;
        }
        let name = dir.name().ok_or(FsError::NotFound)?;
        let parent = visible_dir(edit, &dir.parent())?.and_then(|place| place.base.clone());
        let base = parent.ok_or(FsError::NotFound)?.join(&name);
        let is_dir = edit.view().base_attr_at(&base)?.map(|attr| attr.kind);
        let since = edit.txn.whited_out_at(dir)?;
        let (Some(FileKind::Directory), Some(secs)) = (is_dir, since) else {
            return Err(FsError::NotFound.into());
        };
        edit.txn.remove_whiteout(dir)?;
        edit.invalidate(Invalidation::All);
        let place = visible_dir(edit, dir)?.ok_or(FsError::NotFound)?;
        let ino = ensure_dir(edit, &place)?;
        let row = edit.view().inode(ino)?;
        add_whiteouts_of(edit, &row, dir, &base, Time { secs, nanos: 0 })?;
        edit.invalidate(Invalidation::All);
    }
    Ok(())
}
