//! Where the merged tree differs from the base: the queries that image layers and diffs need.

use crate::base::{BaseError, BasePath};
use crate::delta::{Ino, MergedPath};
use crate::vfs::{FileKind, FsError, Name};

use super::tree::{TreeObject, TreeView};
use crate::overlay::base_names::{new_names, newly_linked_copies};
use crate::overlay::error::Result;
use crate::overlay::followed::{next_followed, recorded_of};
use crate::overlay::node::{Node, is_same_path};

/// A moved directory without its base directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostDir {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Where its base directory was.
    pub base: MergedPath,
}

impl std::fmt::Display for LostDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its directory in the base, {}, is gone", self.base.display())
    }
}

impl TreeView<'_> {
    /// Whether a directory shows the base directory at its own path: the session did not rename it
    /// there or create it.
    ///
    /// # Errors
    /// All methods here fail if the session or the base cannot be read.
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

    /// Directories of the session whose redirect shows a base directory at another path.
    pub fn moved_dirs(&self) -> std::result::Result<Vec<TreeObject>, FsError> {
        self.redirected().map_err(|error| error.into_fs())
    }

    fn redirected(&self) -> Result<Vec<TreeObject>> {
        let mut dirs = Vec::new();
        for ino in self.view.txn.redirects()? {
            let node = Node::Delta(Box::new(self.view.inode(ino)?));
            // A directory without a path is not visible.
            let Ok(place) = self.view.place(&node) else { continue };
            let dir = self.object(node, place.merged.clone())?;
            if !self.shows_same(&dir)? {
                dirs.push(dir);
            }
        }
        Ok(dirs)
    }

    /// The path under which the session recorded a base object that is at `path` now, if it is
    /// another: session and base moved a directory above alike.
    pub fn recorded_path(&self, path: &BasePath) -> std::result::Result<Option<BasePath>, FsError> {
        recorded_of(&self.view, path).map_err(|error| error.into_fs())
    }

    /// Whether session and base moved a directory alike, and the session still has the move.
    pub fn has_moves_of_both(&self) -> std::result::Result<bool, FsError> {
        let followed = next_followed(&self.view, &|_, _| true);
        Ok(self.knows_base && followed.map_err(|error| error.into_fs())?.is_some())
    }

    /// The directories that the session moved and whose base directories are gone: nothing of the
    /// base shows through them until it has these again. Empty without the base.
    pub fn lost_dirs(&self) -> std::result::Result<Vec<LostDir>, FsError> {
        self.redirected_lost().map_err(|error| error.into_fs())
    }

    fn redirected_lost(&self) -> Result<Vec<LostDir>> {
        let mut lost = Vec::new();
        if !self.knows_base || self.view.core.base.has_unfinished_apply()? {
            return Ok(lost);
        }
        for ino in self.view.txn.redirects()? {
            let Ok(place) = self.view.place_of_inode(ino, self.view.shown(ino)?) else { continue };
            if let Some(base) = place.base.as_ref().filter(|_| place.base_missing) {
                lost.push(LostDir { path: place.merged.clone(), base: MergedPath::of_base(base) });
            }
        }
        lost.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(lost)
    }

    /// Number of directories that a row of `acetate_opaque` marks.
    pub fn opaque_dirs(&self) -> std::result::Result<u64, FsError> {
        let dirs = self.view.txn.opaque_dirs();
        dirs.map(|dirs| dirs.len() as u64)
            .map_err(|error| crate::overlay::error::from_store(&error))
    }

    /// The names in the base directory at this path; `None` if the base has no directory there.
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

    /// Whether anything may differ below a directory that has no inode in the session: hard links
    /// of a copied-up base file, also those that the base got later, and whiteouts that another
    /// implementation wrote.
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
            // A parent that cannot be looked up is not visible.
            let found = self.find(&parent).ok().flatten();
            if found.is_some_and(|found| found.base_path().is_some()) {
                return Ok(true);
            }
        }
        Ok(!newly_linked_copies(&self.view)?.is_empty())
    }

    /// The most names that an object may have in the merged tree. Its link count lacks those that
    /// the base file of a copied-up file got since the copy-up.
    pub fn most_names(&self, object: &TreeObject) -> std::result::Result<u32, FsError> {
        let new = match object.row() {
            Some(row) => new_names(&self.view, row).map_err(|error| error.into_fs())?,
            None => 0,
        };
        Ok(object.attr().nlink.saturating_add(new))
    }
}

impl TreeObject {
    /// Whether the object is anything else than the base object at the same path.
    pub fn differs_from_base(&self) -> bool {
        self.base_path().is_none_or(|base| !is_same_path(base, self.path()))
    }
}
