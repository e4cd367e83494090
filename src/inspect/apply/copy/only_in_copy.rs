//! Changes as a copy of the base has to make them. The copy may still have what the base has
//! removed since the session began, as a fresh worktree has, and may lack what the base has got
//! since.

use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::apply::planner::Planner;
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, Change, original_of_dir};
use crate::vfs::FileKind;

impl Planner<'_> {
    /// The change, with the copy's object where the base has none, and without a base object that
    /// came later and that the copy lacks. `None` if nothing is left of it.
    pub(in crate::inspect::apply) fn as_in_copy(&self, change: Change) -> Result<Option<Change>> {
        if !self.target.is_copy() {
            return Ok(Some(change));
        }
        if self.is_later_name(&change)? {
            return Ok(None);
        }
        let mut change = self.before_same_move(change)?;
        if let Some(base) = change.replaced.as_ref().filter(|_| change.is_replaced_drifted)
            && self.target.stat(&base.path)?.is_none()
        {
            (change.replaced, change.is_replaced_drifted) = (None, false);
        }
        match (&change.before, &change.after) {
            (Some(base), None) if change.is_drifted && change.original.is_none() => {
                Ok(self.target.stat(&base.path)?.map(|_| change))
            }
            (Some(base), Some(after)) if after.origin().is_none() && change.original.is_none() => {
                if !change.is_link && self.target.stat(&base.path)?.is_none() {
                    (change.before, change.is_drifted) = (None, false);
                }
                Ok(Some(change))
            }
            (None, Some(_)) if !change.is_link => self.with_object_of_copy(change).map(Some),
            _ => Ok(Some(change)),
        }
    }

    /// Whether a change is at a name that the base has given a file since the session began, and
    /// that the copy lacks: the session made nothing there.
    fn is_later_name(&self, change: &Change) -> Result<bool> {
        let (Some(base), Some(after)) = (&change.before, &change.after) else { return Ok(false) };
        let Some(origin) = after.origin().filter(|origin| origin.path != base.path) else {
            return Ok(false);
        };
        let is_there = MergedPath::of_base(&base.path) == change.path;
        if change.is_link || !is_there || base.attr.kind == FileKind::Directory {
            return Ok(false);
        }
        let recorded = self.base_stat(&origin.path)?;
        let is_further = recorded.is_some_and(|file| file.fileid == base.attr.fileid);
        Ok(is_further && self.target.stat(&base.path)?.is_none())
    }

    /// A change of an object that session and base moved alike, if the copy has it where it was
    /// before.
    fn before_same_move(&self, mut change: Change) -> Result<Change> {
        let Some(base) = change.before.as_ref().filter(|_| !change.is_link) else {
            return Ok(change);
        };
        let recorded = match &change.after {
            Some(after) => after.origin().map(|origin| origin.path.clone()),
            None => self.recorded_path(&base.path)?,
        };
        let Some(recorded) = recorded.filter(|recorded| *recorded != base.path) else {
            return Ok(change);
        };
        let there = self.target.stat(&recorded)?.filter(|there| there.kind == base.attr.kind);
        let (Some(attr), None) = (there, self.target.stat(&base.path)?) else { return Ok(change) };
        if change.after.is_none() {
            change.before = Some(BaseObject { path: recorded, attr });
            change.is_drifted &= change.original.is_none();
            return Ok(change);
        }
        let parent = self.recorded_path_of(&change.path.parent())?;
        let own = parent.zip(change.path.name()).map(|(parent, name)| parent.join(&name));
        change.is_moved = own != Some(recorded);
        (change.before, change.is_drifted) = (None, true);
        self.with_object_of_copy(change)
    }

    fn recorded_path(&self, base: &BasePath) -> Result<Option<BasePath>> {
        let recorded = self.view.recorded_path(base);
        recorded.map_err(|source| diff::at(&MergedPath::of_base(base), source))
    }

    /// The path in the base that the session recorded for a directory.
    fn recorded_path_of(&self, dir: &MergedPath) -> Result<Option<BasePath>> {
        if *dir == MergedPath::root() {
            return Ok(Some(BasePath::root()));
        }
        let found = self.view.find(dir).map_err(|source| diff::at(dir, source))?;
        let Some(found) = found else { return Ok(None) };
        if let Some(origin) = found.origin() {
            return Ok(Some(origin.path.clone()));
        }
        let Some(base) = found.base_path() else { return Ok(None) };
        Ok(Some(self.recorded_path(base)?.unwrap_or_else(|| base.clone())))
    }

    /// Adds the copy's object at the origin of an object that the base has removed, if the session
    /// knows what it began with there.
    fn with_object_of_copy(&self, mut change: Change) -> Result<Change> {
        let origin = change.after.as_ref().and_then(|after| after.origin());
        let Some((after, origin)) = change.after.as_ref().zip(origin) else { return Ok(change) };
        let attr = self.target.stat(&origin.path)?;
        let Some(attr) = attr.filter(|attr| attr.kind == after.attr().kind) else {
            return Ok(change);
        };
        let is_dir = attr.kind == FileKind::Directory;
        let base = BaseObject { path: origin.path.clone(), attr };
        if is_dir {
            change.original = original_of_dir(origin, &base);
            change.is_drifted = false;
        } else if change.original.as_ref().is_none_or(|original| original.digest.is_none()) {
            return Ok(change);
        }
        let is_elsewhere = MergedPath::of_base(&base.path) != change.path;
        change.moved_with_parent = is_elsewhere && !change.is_moved;
        change.before = Some(base);
        Ok(change)
    }

    /// Whether only the copy, and not the base, has an object at a path.
    pub(in crate::inspect::apply) fn is_only_in_copy(&self, path: &BasePath) -> Result<bool> {
        Ok(self.target.is_copy() && self.base_stat(path)?.is_none())
    }

    /// Adds the removals of objects that the copy has, and that the base has removed too.
    pub(in crate::inspect::apply) fn removals_in_copy(&mut self) -> Result<()> {
        if !self.target.is_copy() {
            return Ok(());
        }
        let hidden = self.view.hidden_without_base();
        for (path, base) in hidden.map_err(|source| diff::at(&MergedPath::root(), source))? {
            let Some(attr) = self.target.stat(&base)? else { continue };
            let base = BaseObject { path: base, attr };
            let known = self.view.original_of(&base).map_err(|source| diff::at(&path, source))?;
            let is_dir = base.attr.kind == FileKind::Directory;
            let Some((original, _)) = known
                .filter(|(known, _)| known.kind == base.attr.kind)
                .filter(|(known, _)| is_dir || known.digest.is_some())
            else {
                continue;
            };
            if self.view.is_moved_away(&base).map_err(|source| diff::at(&path, source))? {
                continue;
            }
            self.change(Change { original: Some(original), ..Change::gone(base, path) })?;
        }
        Ok(())
    }
}
