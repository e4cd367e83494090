//! Replacement of opaque marks by whiteouts of the base entries at their paths.
//!
//! The outermost mark comes first: an object in an opaque directory has no base path until the mark
//! is deleted. A mark is deleted after its whiteouts were added: until then they hide nothing
//! visible.

use super::{SealStage, Sealing};
use crate::base::BasePath;
use crate::delta::{Ino, MergedPath, WriteTxn};
use crate::overlay::base_names::newly_linked_copies;
use crate::overlay::cache::Invalidation;
use crate::overlay::copy_up::implied_base;
use crate::overlay::error::Result;
use crate::overlay::resolve::View;
use crate::vfs::{Name, Time};

/// An opaque mark that is being replaced.
pub(super) struct Mark {
    dir: Ino,
    since: Time,
    /// The path of directories to the current position.
    levels: Vec<SealLevel>,
}

/// A delta directory, and the names in the base directory at its path that have no whiteout yet.
struct SealLevel {
    dir: Ino,
    merged: MergedPath,
    base: BasePath,
    names: Vec<Name>,
}

/// The opaque directories, the outermost last.
pub(super) fn opaque(view: &View<'_>) -> Result<Vec<Ino>> {
    let mut all = Vec::new();
    for ino in view.txn.opaque_dirs()? {
        // A directory without a path is not visible.
        let place = view.place_of_inode(ino, view.shown(ino)?).ok();
        all.push((place.map_or(0, |place| place.merged.names().count()), ino));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    Ok(all.into_iter().map(|(_, ino)| ino).collect())
}

impl Sealing {
    /// Replaces the next batch of marks.
    pub(super) fn replace_marks(
        &mut self,
        txn: &mut dyn WriteTxn,
        mut left: Vec<Ino>,
        mark: Option<Mark>,
        at: &mut MergedPath,
    ) -> Result<()> {
        let Some(mut mark) = mark else {
            self.stage = match left.pop() {
                Some(dir) => {
                    let secs = txn.opaque_since(dir)?.unwrap_or_default();
                    let levels = self.below_mark(txn, dir)?.into_iter().collect();
                    let mark = Mark { dir, since: Time { secs, nanos: 0 }, levels };
                    SealStage::Marks { left, mark: Some(mark) }
                }
                None => {
                    let mut left = txn.copied_links()?;
                    left.extend(newly_linked_copies(&self.edit(txn).view())?);
                    SealStage::Links { left, paths: Vec::new() }
                }
            };
            return Ok(());
        };
        while !self.is_spent() {
            let Some(level) = mark.levels.last_mut() else {
                txn.remove_opaque(mark.dir)?;
                self.edit(txn).invalidate(Invalidation::AllPlaces);
                self.done.opaque += 1;
                self.stage = SealStage::Marks { left, mark: None };
                return Ok(());
            };
            let Some(name) = level.names.pop() else {
                mark.levels.pop();
                continue;
            };
            let path = level.merged.join(&name);
            at.clone_from(&path);
            match txn.dentry(level.dir, &name)? {
                None if txn.is_whited_out(&path)? => {}
                None => {
                    txn.add_whiteout(&path, mark.since)?;
                    self.spend(0);
                }
                Some(below) => {
                    let implied = implied_base(&self.edit(txn), below, &level.base, &name)?;
                    if let Some(base) = implied {
                        mark.levels.push(self.masked(below, path, base)?);
                    }
                }
            }
        }
        self.stage = SealStage::Marks { left, mark: Some(mark) };
        Ok(())
    }

    /// The base directory at the path of an opaque directory, if there is one.
    fn below_mark(&self, txn: &mut dyn WriteTxn, dir: Ino) -> Result<Option<SealLevel>> {
        let Some((parent, name)) = txn.name_of(dir)? else { return Ok(None) };
        let edit = self.edit(txn);
        let view = edit.view();
        let above = view.place_of_inode(parent, view.shown(parent)?)?;
        let base = match &above.base {
            Some(base) => view.base_dir_at(base.join(&name))?,
            None => None,
        };
        base.map(|base| self.masked(dir, above.merged.join(&name), base)).transpose()
    }

    fn masked(&self, dir: Ino, merged: MergedPath, base: BasePath) -> Result<SealLevel> {
        let listing = self.core.base.list(&base)?;
        let names = listing.entries.iter().map(|entry| entry.name.clone()).collect();
        Ok(SealLevel { dir, merged, base, names })
    }
}
