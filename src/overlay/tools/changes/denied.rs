//! Objects that cannot be compared, because the base denies access to them: a person may have
//! closed a directory of the base to the user of this process.

use super::{Change, ChangeSearch, ChangesError};
use crate::base::BasePath;
use crate::delta::{Ino, MergedPath};
use crate::overlay::error::{OpError, Result};
use crate::overlay::tools::tree::TreeView;

/// An object of the session, or a hidden name, to whose base object access is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedChange {
    /// The path in the merged tree.
    pub path: MergedPath,
    /// The base path from which the session copied the object.
    pub from: Option<BasePath>,
}

pub(super) type NoteDenied<'a> = &'a mut dyn FnMut(DeniedChange);

impl TreeView<'_> {
    /// As [`TreeView::changes`], but calls `denied` for each object that cannot be compared, and
    /// continues. Nothing below such a directory is listed.
    ///
    /// # Errors
    /// As [`TreeView::changes`].
    pub fn changes_past_denied(
        &self,
        each: &mut dyn FnMut(Change) -> bool,
        denied: &mut dyn FnMut(DeniedChange),
    ) -> std::result::Result<bool, ChangesError> {
        let mut search = ChangeSearch { denied: Some(denied), ..ChangeSearch::new(self, each) };
        let found = search.all();
        found.map_err(|error| ChangesError { path: search.at, source: error.into_fs() })
    }
}

impl ChangeSearch<'_> {
    /// Notes the object at the current path, if access to it is denied and the search is to go on.
    pub(super) fn pass_by(&mut self, error: OpError, ino: Option<Ino>) -> Result<()> {
        if !error.is_denied() || self.denied.is_none() {
            return Err(error);
        }
        let row = ino.map(|ino| self.view().txn.inode(ino)).transpose()?.flatten();
        let from = row.and_then(|row| row.origin).map(|origin| origin.path);
        let path = self.at.clone();
        if let Some(note) = &mut self.denied {
            note(DeniedChange { path, from });
        }
        Ok(())
    }
}
