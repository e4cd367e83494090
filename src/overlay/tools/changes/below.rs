//! The changes below one directory of the session.

use super::{Change, ChangeSearch, ChangesError, SessionDir};
use crate::delta::{Ino, MergedPath};
use crate::overlay::error::Result;
use crate::overlay::tools::tree::TreeView;
use crate::vfs::Name;

impl TreeView<'_> {
    /// As [`TreeView::changes`], for the changes below a directory. Hard links of copied-up files
    /// that have no dentry are omitted.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn changes_in(
        &self,
        dir: &MergedPath,
        each: &mut dyn FnMut(Change) -> bool,
    ) -> std::result::Result<bool, ChangesError> {
        let mut search = ChangeSearch::new(self, each);
        let found = search.below(dir);
        found.map_err(|error| ChangesError { path: search.at, source: error.into_fs() })
    }
}

impl ChangeSearch<'_> {
    fn below(&mut self, path: &MergedPath) -> Result<bool> {
        self.session_dir(path)?.map_or(Ok(true), |dir| self.all_in(dir))
    }

    /// The directory at a path, if the session has it.
    fn session_dir(&mut self, path: &MergedPath) -> Result<Option<SessionDir>> {
        let (dir, below) = self.nearest_session_dir(path)?;
        Ok(below.is_empty().then_some(dir))
    }

    /// The nearest directory at or above a path that the session has, and the names below it.
    pub(super) fn nearest_session_dir(
        &mut self,
        path: &MergedPath,
    ) -> Result<(SessionDir, Vec<Name>)> {
        let root = self.view().place_of_inode(Ino::ROOT, crate::vfs::FileId::ROOT)?;
        let mut dir = self.dir(root, Ino::ROOT, None)?;
        let mut names = path.names();
        while let Some(name) = names.next() {
            self.at = dir.place.merged.join(&name);
            let Some(ino) = self.view().txn.dentry(dir.ino, &name)? else {
                return Ok((dir, std::iter::once(name).chain(names).collect()));
            };
            let place = self.view().place_of_inode(ino, self.view().shown(ino)?)?;
            dir = self.dir(place, ino, Some((&dir, &name)))?;
        }
        Ok((dir, Vec::new()))
    }
}
