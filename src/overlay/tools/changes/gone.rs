//! Deleted base objects: names that the session hides without an entry of its own, and whether the
//! base changed the objects afterwards.

use std::collections::BTreeSet;

use super::{BaseObject, Change, ChangeSearch, SessionDir};
use crate::base::{BaseError, BasePath};
use crate::delta::{Ino, MergedPath};
use crate::overlay::error::{OpError, Result};
use crate::overlay::moved_out::may_show_again;
use crate::overlay::original::is_changed_since_hidden;
use crate::overlay::tools::tree::TreeView;
use crate::vfs::{FileKind, FsError, Name, Time};

impl TreeView<'_> {
    /// When the session hid a base object that would be at `place`. Whiteouts and opaque marks
    /// store seconds: returns the end of that second. Without any, returns the earliest time.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn gone_since(
        &self,
        base: &BaseObject,
        place: &MergedPath,
    ) -> std::result::Result<Time, FsError> {
        self.hidden_time(base, place).map_err(|error| error.into_fs())
    }

    /// The change of a deleted base object that would be at `path`.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn gone(&self, base: BaseObject, path: MergedPath) -> std::result::Result<Change, FsError> {
        let each = &mut |_| true;
        let search = ChangeSearch::new(self, each);
        search.gone(base, path).map_err(|error| error.into_fs())
    }

    /// The first `most` names of a directory that begin with `prefix` and that the session deleted,
    /// with the types of their base objects. The directory may be deleted itself.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn gone_names(
        &self,
        dir: &MergedPath,
        prefix: &[u8],
        most: usize,
    ) -> std::result::Result<Vec<(Name, FileKind)>, FsError> {
        let each = &mut |_| true;
        let mut search = ChangeSearch::new(self, each);
        search.gone_names(dir, prefix, most).map_err(|error| error.into_fs())
    }

    /// The merged paths of whiteouts whose base object is missing, and that stay for when the base
    /// has the object again.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn kept_whiteouts(&self) -> std::result::Result<BTreeSet<MergedPath>, FsError> {
        let missing = self.hidden_without_base()?.into_iter();
        let kept = missing.filter_map(|(path, base)| {
            may_show_again(self.view.txn, &base).map(|may| may.then_some(path)).transpose()
        });
        kept.collect::<Result<_>>().map_err(|error| error.into_fs())
    }

    /// Whether the base has something else than a directory where one above `path` should be.
    ///
    /// # Errors
    /// The base cannot be read.
    pub fn is_replaced_above(&self, path: &BasePath) -> std::result::Result<bool, FsError> {
        let mut rest = path.split();
        while let Some((above, _)) = rest {
            match self.view.base_attr_at(&above).map_err(|error| error.into_fs())? {
                Some(attr) => return Ok(attr.kind != FileKind::Directory),
                None => rest = above.split(),
            }
        }
        Ok(false)
    }

    /// The merged paths of whiteouts whose base object is missing, with the path that it had.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn hidden_without_base(&self) -> std::result::Result<Vec<(MergedPath, BasePath)>, FsError> {
        self.missing_hidden().map_err(|error| error.into_fs())
    }

    fn missing_hidden(&self) -> Result<Vec<(MergedPath, BasePath)>> {
        let mut missing = Vec::new();
        for parent in self.view.txn.whiteout_parents()? {
            let Some(dir) = self.find(&parent)? else { continue };
            let origin = dir.origin().map(|origin| &origin.path);
            let base = match dir.row().map(|row| row.ino) {
                Some(Ino::ROOT) => Some(BasePath::root()),
                _ => origin.or(dir.base_path()).cloned(),
            };
            let (Some(base), ino) = (base, dir.row().map(|row| row.ino)) else { continue };
            for name in self.view.txn.whiteouts_in(&parent)? {
                let has_entry = match ino {
                    Some(ino) => self.view.txn.dentry(ino, &name)?.is_some(),
                    None => false,
                };
                let path = base.join(&name);
                if !has_entry && self.view.base_attr_at(&path)?.is_none() {
                    missing.push((parent.join(&name), path));
                }
            }
        }
        Ok(missing)
    }

    fn hidden_time(&self, base: &BaseObject, place: &MergedPath) -> Result<Time> {
        // A renamed and sealed directory has no whiteouts inside: only its old path has one.
        let home = MergedPath::of_base(&base.path);
        let own = [place.clone(), home.clone()];
        for at in own.into_iter().chain(home.above()) {
            if let Some(secs) = self.hidden_since(&at)? {
                return Ok(Time { secs, nanos: 999_999_999 });
            }
        }
        Ok(Time { secs: i64::MIN, nanos: 0 })
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

impl ChangeSearch<'_> {
    /// Reports the base names that a directory hides without an entry.
    pub(super) fn whiteouts(&mut self, dir: &SessionDir) -> Result<bool> {
        self.visited.insert(dir.place.merged.clone());
        if !self.tree.knows_base {
            return self.whiteouts_without_base(&dir.place.merged, Some(dir.ino));
        }
        let Some(base) = &dir.base else { return Ok(true) };
        self.at = dir.place.merged.clone();
        let names = match self.hidden_names(dir, base) {
            Err(error) => return self.pass_by(error, Some(dir.ino)).map(|()| true),
            names => names?,
        };
        for name in names {
            self.at = dir.place.merged.join(&name);
            let gone = self.gone_object(dir, base, &name);
            let gone =
                gone.and_then(|gone| gone.map(|gone| self.gone(gone, self.at.clone())).transpose());
            let change = match gone {
                Ok(Some(change)) => change,
                Ok(None) => continue,
                Err(error) => {
                    self.pass_by(error, None)?;
                    continue;
                }
            };
            if !(self.each)(change) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names of `base` that a directory hides, in order.
    fn hidden_names(&self, dir: &SessionDir, base: &BasePath) -> Result<Vec<Name>> {
        let mut names = match dir.hides_base_entries {
            true => self.names_in_base(base)?,
            false => self.view().txn.whiteouts_in(&dir.place.merged)?,
        };
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(names)
    }

    /// The base object of a hidden name, unless the directory has an entry for it, or the object
    /// was moved.
    fn gone_object(
        &self,
        dir: &SessionDir,
        base: &BasePath,
        name: &Name,
    ) -> Result<Option<BaseObject>> {
        let Some(gone) = self.base_object(base.join(name))? else { return Ok(None) };
        let is_gone =
            self.view().txn.dentry(dir.ino, name)?.is_none() && !self.moved_away(&gone)?;
        Ok(is_gone.then_some(gone))
    }

    fn gone_names(
        &mut self,
        path: &MergedPath,
        prefix: &[u8],
        most: usize,
    ) -> Result<Vec<(Name, FileKind)>> {
        let (dir, below) = self.nearest_session_dir(path)?;
        let Some(base) = &dir.base else { return Ok(Vec::new()) };
        let Some((name, below)) = below.split_first() else {
            let names = self.hidden_names(&dir, base)?;
            return first_gone(names, (prefix, most), &|name| self.gone_object(&dir, base, name));
        };
        if !self.hidden_names(&dir, base)?.contains(name) {
            return Ok(Vec::new());
        }
        let mut gone = self.gone_object(&dir, base, name)?;
        for name in below {
            gone = match gone {
                Some(above) => self.gone_with(&above.path, name)?,
                None => None,
            };
        }
        let Some(gone) = gone else { return Ok(Vec::new()) };
        let mut names = self.names_in_base(&gone.path)?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        first_gone(names, (prefix, most), &|name| self.gone_with(&gone.path, name))
    }

    /// The entry of a deleted base directory, unless the object was moved out of it.
    fn gone_with(&self, dir: &BasePath, name: &Name) -> Result<Option<BaseObject>> {
        let Some(gone) = self.base_object(dir.join(name))? else { return Ok(None) };
        let is_gone = !self.moved_away(&gone)?;
        Ok(is_gone.then_some(gone))
    }

    /// Reports the hidden names of a directory if the base is missing.
    pub(super) fn whiteouts_without_base(
        &mut self,
        dir: &MergedPath,
        ino: Option<Ino>,
    ) -> Result<bool> {
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

    /// The change of a deleted base object that would be at `path`, with its drift.
    fn gone(&self, gone: BaseObject, path: MergedPath) -> Result<Change> {
        let mut change = Change::gone(gone, path);
        self.compare_with_original(&mut change, None)?;
        if let (Some(gone), None) = (&change.before, &change.original) {
            let since = self.tree.hidden_time(gone, &change.path)?;
            change.is_drifted = self.changed_since(gone, since)?;
        }
        Ok(change)
    }

    /// Whether a deleted or replaced base object, or an object that was deleted with it, changed
    /// after `since`. A directory that cannot be read counts as changed, as a file does.
    pub(super) fn changed_since(&self, gone: &BaseObject, since: Time) -> Result<bool> {
        match self.has_changed_since(gone, since) {
            Err(OpError::Base(BaseError::Denied)) => Ok(true),
            has_changed => has_changed,
        }
    }

    fn has_changed_since(&self, gone: &BaseObject, since: Time) -> Result<bool> {
        let is_changed = |object: &BaseObject| is_changed_since_hidden(self.view(), object, since);
        if is_changed(gone)? {
            return Ok(true);
        }
        let is_dir = |object: &BaseObject| object.attr.kind == FileKind::Directory;
        let mut open: Vec<_> = is_dir(gone).then(|| gone.path.clone()).into_iter().collect();
        while let Some(dir) = open.pop() {
            for name in self.names_in_base(&dir)? {
                let Some(inside) = self.base_object(dir.join(&name))? else { continue };
                let is_changed = is_changed(&inside)?;
                // An object that was moved out of the directory was not deleted with it.
                if !(is_changed || is_dir(&inside)) || self.moved_away(&inside)? {
                    continue;
                }
                if is_changed {
                    return Ok(true);
                }
                open.push(inside.path);
            }
        }
        Ok(false)
    }

    fn names_in_base(&self, dir: &BasePath) -> Result<Vec<Name>> {
        match self.view().core.base.list(dir) {
            Ok(listing) => Ok(listing.entries.iter().map(|entry| entry.name.clone()).collect()),
            Err(BaseError::NotFound | BaseError::Changed | BaseError::WrongKind) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The first `most` of `names` that begin with `prefix` and have a deleted object.
fn first_gone(
    names: Vec<Name>,
    (prefix, most): (&[u8], usize),
    gone: &dyn Fn(&Name) -> Result<Option<BaseObject>>,
) -> Result<Vec<(Name, FileKind)>> {
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| name.as_bytes().starts_with(prefix)) {
        if found.len() >= most {
            break;
        }
        if let Some(gone) = gone(&name)? {
            found.push((name, gone.attr.kind));
        }
    }
    Ok(found)
}
