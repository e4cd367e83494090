//! The merged tree as a layer over the base: where a directory shows what the base has at the same
//! path, and where the session says something of what it has no directory for.

use crate::base::{BaseError, BasePath};
use crate::delta::{Ino, MergedPath};
use crate::vfs::{FileKind, FsError, Name};

use super::error::Result;
use super::node::{Node, is_same_path};
use super::tree::{TreeObject, TreeView};

impl TreeView<'_> {
    /// Whether a directory shows what the base has at the same path, as far as the session does
    /// not say otherwise: it neither moved there nor was made anew.
    ///
    /// # Errors
    /// The session or the base cannot be read; so with all methods here.
    pub fn is_in_place(&self, dir: &TreeObject) -> std::result::Result<bool, FsError> {
        self.shows_same(dir).map_err(|error| error.into_fs())
    }

    fn shows_same(&self, dir: &TreeObject) -> Result<bool> {
        if let Node::Delta(row) = &dir.node {
            let is_born = row.ino != Ino::ROOT && row.origin.is_none() && row.subdirs.is_some();
            if is_born && self.view.txn.redirect(row.ino)?.is_none() {
                return Ok(false);
            }
        }
        let place = self.view.place(&dir.node)?;
        Ok(place.base.as_ref().is_some_and(|base| is_same_path(base, dir.path())))
    }

    /// The directories of the session through which another base directory shows than the one at
    /// their own path, because of a redirect.
    pub fn moved_dirs(&self) -> std::result::Result<Vec<TreeObject>, FsError> {
        self.redirected().map_err(|error| error.into_fs())
    }

    fn redirected(&self) -> Result<Vec<TreeObject>> {
        let mut dirs = Vec::new();
        for ino in self.view.txn.redirects()? {
            let node = Node::Delta(Box::new(self.view.inode(ino)?));
            // One that lies nowhere shows nothing.
            let Ok(place) = self.view.place(&node) else { continue };
            let dir = self.object(node, place.merged.clone())?;
            if !self.shows_same(&dir)? {
                dirs.push(dir);
            }
        }
        Ok(dirs)
    }

    /// How many directories of the session are opaque by a mark.
    pub fn opaque_dirs(&self) -> std::result::Result<u64, FsError> {
        let dirs = self.view.txn.opaque_dirs();
        dirs.map(|dirs| dirs.len() as u64).map_err(|error| super::error::from_store(&error))
    }

    /// The names in the base's directory at this path; `None` where it has none there.
    pub fn base_names(&self, path: &MergedPath) -> std::result::Result<Option<Vec<Name>>, FsError> {
        self.names_at(path).map_err(|error| error.into_fs())
    }

    fn names_at(&self, path: &MergedPath) -> Result<Option<Vec<Name>>> {
        let Some(path) = BasePath::from_bytes(&path.as_bytes()[1..]) else { return Ok(None) };
        let base = &self.view.core.base;
        match base.stat(&path) {
            Ok(attr) if attr.kind == FileKind::Directory => {
                let listing = base.list(&path)?;
                Ok(Some(listing.entries.iter().map(|entry| entry.name.clone()).collect()))
            }
            Ok(_) | Err(BaseError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether something may differ below a directory that is not in the session: further names
    /// of a base file that was copied up, and whiteouts of another implementation.
    pub fn has_strays(&self) -> std::result::Result<bool, FsError> {
        self.finds_strays().map_err(|error| error.into_fs())
    }

    fn finds_strays(&self) -> Result<bool> {
        for ino in self.view.txn.copied_links()? {
            if let Some(row) = self.view.txn.inode(ino)?
                && self.view.base_links_left(&row)? > 0
            {
                return Ok(true);
            }
        }
        for parent in self.view.txn.whiteout_parents()? {
            // What cannot be looked up is nothing that shows.
            let found = self.find(&parent).ok().flatten();
            if found.is_some_and(|found| found.base_path().is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl TreeObject {
    /// Whether it is not just what the base has at the same path.
    pub fn differs_from_base(&self) -> bool {
        self.base_path().is_none_or(|base| !is_same_path(base, self.path()))
    }
}
