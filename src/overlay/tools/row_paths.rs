//! The merged paths of rows.

use super::tree::TreeView;
use crate::delta::{Ino, MergedPath};
use crate::vfs::{FileKind, FsError};

use crate::overlay::error::Result;
use crate::overlay::node::is_linked;

impl TreeView<'_> {
    /// The paths of all names of an object of the session, and those at which names of its base
    /// file may show it. None if it has no name.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn paths_of(&self, ino: Ino) -> std::result::Result<Vec<MergedPath>, FsError> {
        if ino == Ino::ROOT {
            return Ok(vec![MergedPath::root()]);
        }
        let names =
            self.view.txn.names_of(ino).map_err(|e| crate::overlay::error::from_store(&e))?;
        let mut paths = Vec::new();
        for (dir, name) in names {
            paths.extend(self.path_of_dir(dir)?.map(|dir| dir.join(&name)));
        }
        paths.extend(self.base_names_of(ino).map_err(|error| error.into_fs())?);
        Ok(paths)
    }

    /// The paths of the further names of the base file of a copied-up file.
    fn base_names_of(&self, ino: Ino) -> Result<Vec<MergedPath>> {
        let Some(row) = self.view.txn.inode(ino)? else { return Ok(Vec::new()) };
        let Some(origin) = row.origin.filter(|origin| is_linked(row.kind, origin.nlink)) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        self.view.core.base.find_linked(origin.fileid, &mut |path| {
            names.push(path.clone());
            false
        })?;
        let mut paths = Vec::new();
        for name in names {
            let shown = self.view.shown_name(&name)?;
            paths.extend(shown.map(|(place, name)| place.merged.join(&name)));
        }
        Ok(paths)
    }

    /// The path of a directory of the session; `None` if it has no name.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn path_of_dir(&self, dir: Ino) -> std::result::Result<Option<MergedPath>, FsError> {
        match self.place_of_row(dir).map_err(|error| error.into_fs()) {
            Err(FsError::Stale) => Ok(None),
            found => found,
        }
    }

    fn place_of_row(&self, dir: Ino) -> Result<Option<MergedPath>> {
        let Some(row) = self.view.txn.inode(dir)? else { return Ok(None) };
        if row.kind != FileKind::Directory {
            return Ok(None);
        }
        Ok(Some(self.view.place_of_inode(dir, row.fileid())?.merged.clone()))
    }
}
