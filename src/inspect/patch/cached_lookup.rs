//! Looks up many paths of the merged tree.

use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::FileKind;

/// Looks up paths; caches the last directory, because many paths in a row share it.
pub(super) struct CachedLookup<'v, 'a> {
    view: &'v TreeView<'a>,
    dir: Option<(MergedPath, Option<TreeObject>)>,
}

impl<'v, 'a> CachedLookup<'v, 'a> {
    pub fn new(view: &'v TreeView<'a>) -> Self {
        Self { view, dir: None }
    }

    /// The object at a path, if any.
    pub fn find(&mut self, path: &MergedPath) -> Result<Option<TreeObject>> {
        let failed = |source| InspectError::at(path, source);
        let Some(name) = path.name() else { return self.view.find(path).map_err(failed) };
        let parent = path.parent();
        if self.dir.as_ref().is_none_or(|(known, _)| *known != parent) {
            let found = self.view.find(&parent).map_err(failed)?;
            let found = found.filter(|found| found.attr().kind == FileKind::Directory);
            self.dir = Some((parent, found));
        }
        match &self.dir {
            Some((_, Some(dir))) => self.view.child(dir, &name).map_err(failed),
            _ => Ok(None),
        }
    }
}
