//! What is gone of the base: names that the session hides and has nothing at, and whether the base
//! changed what was there since.

use super::{BaseObject, Change, Dir, Search};
use crate::delta::{Ino, MergedPath};
use crate::overlay::error::Result;
use crate::overlay::tree::TreeView;
use crate::vfs::{FileKind, FsError};

impl TreeView<'_> {
    /// When a path was whited out, or a directory above it that is there became opaque, in seconds
    /// since 1970; `None` if it is not hidden so.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn whited_out(&self, path: &MergedPath) -> std::result::Result<Option<i64>, FsError> {
        self.hidden_since(path).map_err(|error| error.into_fs())
    }

    /// Since when a base object is gone at `place`, where it would be, in seconds since 1970; ever,
    /// where nothing tells.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn gone_since(
        &self,
        base: &BaseObject,
        place: &MergedPath,
    ) -> std::result::Result<i64, FsError> {
        self.since_gone(base, place).map_err(|error| error.into_fs())
    }

    fn since_gone(&self, base: &BaseObject, place: &MergedPath) -> Result<i64> {
        // In a directory that was moved and sealed nothing is whited out but what it left.
        let home = MergedPath::of_base(&base.path);
        let own = [place.clone(), home.clone()];
        for at in own.into_iter().chain(home.above()) {
            if let Some(since) = self.hidden_since(&at)? {
                return Ok(since);
            }
        }
        Ok(i64::MIN)
    }

    fn hidden_since(&self, path: &MergedPath) -> Result<Option<i64>> {
        let txn = self.view.txn;
        if let Some(at) = txn.whited_out_at(path)? {
            return Ok(Some(at));
        }
        for above in path.above() {
            let Some(ino) = self.find(&above)?.and_then(|dir| Some(dir.row()?.ino)) else {
                continue;
            };
            if let Some(at) = txn.opaque_since(ino)? {
                return Ok(Some(at));
            }
            if txn.redirect(ino)?.is_some() {
                break;
            }
        }
        Ok(None)
    }
}

impl Search<'_> {
    /// The names of the base that a directory hides, and has no entry for.
    pub(super) fn whiteouts(&mut self, dir: &Dir) -> Result<bool> {
        self.visited.insert(dir.place.merged.clone());
        if !self.tree.knows_base {
            return self.names_alone(&dir.place.merged, Some(dir.ino));
        }
        let Some(base) = &dir.base else { return Ok(true) };
        self.at = dir.place.merged.clone();
        let mut names = match dir.shows_none {
            true => self.names_in_base(base)?,
            false => self.view().txn.whiteouts_in(&dir.place.merged)?,
        };
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for name in names {
            self.at = dir.place.merged.join(&name);
            let Some(gone) = self.base_object(base.join(&name))? else { continue };
            if self.view().txn.dentry(dir.ino, &name)?.is_some() || self.moved_away(&gone)? {
                continue;
            }
            let mut change = Change::gone(gone, self.at.clone());
            self.compare_with_original(&mut change)?;
            if let (Some(gone), None) = (&change.before, &change.original) {
                let since = self.tree.since_gone(gone, &change.path)?;
                change.is_drifted = self.changed_since(gone, since)?;
            }
            if !(self.each)(change) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names that a directory hides, where what the base has there is not known.
    pub(super) fn names_alone(&mut self, dir: &MergedPath, ino: Option<Ino>) -> Result<bool> {
        let mut names = self.view().txn.whiteouts_in(dir)?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for name in names {
            let is_there = match ino {
                Some(ino) => self.view().txn.dentry(ino, &name)?.is_some(),
                None => false,
            };
            if !is_there && !(self.each)(Change::at(dir.join(&name))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a base object that is gone, or one in it that is gone with it, changed after a
    /// moment, in seconds since 1970. Only its ctime tells, where no original is kept.
    fn changed_since(&self, gone: &BaseObject, since: i64) -> Result<bool> {
        let mut open = vec![gone.clone()];
        while let Some(object) = open.pop() {
            let is_late = object.attr.ctime.secs > since;
            if is_late && !self.is_as_hidden(&object)? {
                return Ok(true);
            }
            if object.attr.kind != FileKind::Directory {
                continue;
            }
            for name in self.names_in_base(&object.path)? {
                let inside = self.base_object(object.path.join(&name))?;
                let is_looked_at = |object: &BaseObject| {
                    object.attr.kind == FileKind::Directory || object.attr.ctime.secs > since
                };
                // What was moved out of the directory did not go with it.
                if let Some(inside) = inside.filter(is_looked_at)
                    && !self.moved_away(&inside)?
                {
                    open.push(inside);
                }
            }
        }
        Ok(false)
    }

    /// Whether an original of a base object is kept, which the object still is.
    fn is_as_hidden(&self, object: &BaseObject) -> Result<bool> {
        match self.view().txn.original(&object.path)? {
            Some(original) => self.view().is_as_original(&original, object),
            None => Ok(false),
        }
    }
}
