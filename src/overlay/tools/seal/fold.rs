//! Folding of redirects: everything that shows through a redirect gets dentries, recursively; then
//! the redirect is deleted.
//!
//! The innermost redirect comes first. While the redirect exists, the directory shows its target as
//! before. Afterwards the whiteouts below it refer to the base directory at its own path, so they
//! are replaced by whiteouts for the entries there, if any.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{SealStage, Sealing, marks};
use crate::delta::{Ino, InodeRow, MergedPath, WriteTxn};
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::add_whiteouts_of;
use crate::overlay::error::Result;
use crate::overlay::node::DirPlace;
use crate::overlay::readdir::each_entry;
use crate::overlay::resolve::View;
use crate::vfs::{FsError, Name};

/// A redirect that is being folded.
pub(super) struct Fold {
    dir: Ino,
    /// The path of directories to the current position, each with its unprocessed names.
    levels: Vec<(Arc<DirPlace>, Vec<Name>)>,
}

/// The directories whose redirects must be folded, the innermost last.
///
/// A redirect to the directory's own path is redundant. It is folded only below another redirect,
/// because the whiteouts of the two cannot be told apart.
pub(super) fn redirected(view: &View<'_>) -> Result<Vec<Ino>> {
    let mut all = Vec::new();
    for ino in view.txn.redirects()? {
        // A directory without a path is not visible.
        if let Ok(place) = view.place_of_inode(ino, view.shown(ino)?) {
            let base = view.txn.redirect(ino)?;
            let is_own = base.is_some_and(|b| *b.as_bytes() == place.merged.as_bytes()[1..]);
            all.push((place.merged.clone(), ino, is_own));
        }
    }
    let moved: BTreeSet<MergedPath> =
        all.iter().filter(|(_, _, is_own)| !is_own).map(|(path, ..)| path.clone()).collect();
    all.retain(|(path, _, is_own)| !is_own || is_below(path, &moved));
    all.sort_by_key(|(path, ..)| path.names().count());
    Ok(all.into_iter().map(|(_, ino, _)| ino).collect())
}

fn is_below(path: &MergedPath, dirs: &BTreeSet<MergedPath>) -> bool {
    let mut above = path.parent();
    loop {
        if dirs.contains(&above) {
            return true;
        }
        let next = above.parent();
        if next == above {
            return false;
        }
        above = next;
    }
}

impl Sealing {
    /// Continues folding.
    pub(super) fn fold(
        &mut self,
        txn: &mut dyn WriteTxn,
        mut left: Vec<Ino>,
        fold: Option<Fold>,
        at: &mut MergedPath,
    ) -> Result<()> {
        let Some(mut fold) = fold else {
            self.stage = match left.pop() {
                Some(dir) => {
                    let row = self.edit(txn).view().inode(dir)?;
                    let levels = vec![self.level(txn, &row)?];
                    SealStage::Folds { left, fold: Some(Fold { dir, levels }) }
                }
                None => {
                    let left = marks::opaque(&self.edit(txn).view())?;
                    SealStage::Marks { left, mark: None }
                }
            };
            return Ok(());
        };
        while !self.is_spent() {
            let Some((place, names)) = fold.levels.last_mut() else {
                self.unredirect(txn, fold.dir, at)?;
                self.done.redirects += 1;
                self.stage = SealStage::Folds { left, fold: None };
                return Ok(());
            };
            let Some(name) = names.pop() else {
                fold.levels.pop();
                continue;
            };
            *at = place.merged.join(&name);
            let place = Arc::clone(place);
            if let Some(row) = self.settle(txn, &place, &name)? {
                // Rows of another program may make a directory its own ancestor (invariant S8).
                if fold.levels.iter().any(|(above, _)| above.ino == Some(row.ino)) {
                    return Err(FsError::Loop.into());
                }
                fold.levels.push(self.level(txn, &row)?);
            }
        }
        self.stage = SealStage::Folds { left, fold: Some(fold) };
        Ok(())
    }

    /// The place of a delta directory, and its visible names.
    fn level(&self, txn: &mut dyn WriteTxn, row: &InodeRow) -> Result<(Arc<DirPlace>, Vec<Name>)> {
        let edit = self.edit(txn);
        let place = edit.view().place_of_inode(row.ino, row.fileid())?;
        let mut names = Vec::new();
        each_entry(&edit.view(), &place, &mut |entry| names.push(entry.name))?;
        Ok((place, names))
    }

    /// Deletes a redirect through which nothing shows any more.
    fn unredirect(&mut self, txn: &mut dyn WriteTxn, dir: Ino, at: &mut MergedPath) -> Result<()> {
        let mut edit = self.edit(txn);
        let row = edit.view().inode(dir)?;
        let merged = edit.view().place_of_inode(dir, row.fileid())?.merged.clone();
        at.clone_from(&merged);
        edit.txn.remove_redirect(dir)?;
        edit.txn.remove_whiteouts_below(&merged)?;
        edit.invalidate(Invalidation::AllPlaces);
        let implied = edit.view().place_of_inode(dir, row.fileid())?.base.clone();
        match implied {
            Some(base) => {
                let now = edit.now;
                add_whiteouts_of(&mut edit, &row, &merged, &base, now)
            }
            None => Ok(()),
        }
    }
}
