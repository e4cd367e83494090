//! Which part of the tree is shown to whom: what tells one export of a session from another.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::base::BasePath;
use crate::delta::{InodeRow, MergedPath};
use crate::vfs::{FileId, FsError, Locator};

use super::edit::Edit;
use super::error::Result;
use super::node::{Node, is_linked};
use super::resolve::View;

/// Which paths of a scope have guarded content. All paths are those below the scope's root, which
/// is `/`.
pub trait GuardedPaths: Send + Sync {
    /// Whether the content of a file at this path is only to be replaced as a whole, once it
    /// passed its validators.
    fn is_guarded(&self, path: &[u8]) -> bool;

    /// Whether that may be so of a path below this directory.
    fn may_guard_below(&self, dir: &[u8]) -> bool;

    /// Whether only a directory or a regular file may be made at this path, or moved there.
    fn bars_links(&self, path: &[u8]) -> bool;
}

/// What an [`Overlay`](super::Overlay) shows of its session, and on whose account.
#[derive(Clone, Default)]
pub struct Scope {
    /// The directory that is shown as the root, and above which nothing is; `None` for the whole
    /// tree. It is meant itself, whatever its path becomes.
    pub root: Option<Locator>,
    /// Refuse every change.
    pub read_only: bool,
    /// The largest size of a file, in bytes; `None` for the session's limit alone.
    pub file_bytes: Option<u64>,
    /// Directories that stay where they are: something is mounted on them or below.
    pub pinned: HashSet<FileId>,
    /// Files with guarded content.
    pub guarded: Option<Arc<dyn GuardedPaths>>,
    /// The export, as the audit log names it.
    pub export: Option<Arc<str>>,
}

impl Scope {
    /// The number of the root that is shown.
    pub(super) fn root_id(&self) -> FileId {
        self.root.as_ref().map_or(FileId::ROOT, Locator::fileid)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("root", &self.root)
            .field("read_only", &self.read_only)
            .field("pinned", &self.pinned)
            .field("export", &self.export)
            .finish_non_exhaustive()
    }
}

impl View<'_> {
    /// Whether an object is shown to this scope: by any of its names.
    pub(super) fn is_in_scope(&self, node: &Node) -> Result<bool> {
        let Some(root) = &self.scope.root else { return Ok(true) };
        if node.fileid() == root.fileid() {
            return Ok(true);
        }
        let root = self.found(root)?.ok_or(FsError::Stale)?;
        let root = self.place(&root)?;
        self.has_path(node, &|path| path.is_within(&root.merged))
    }

    /// Whether one of the paths by which an object shows is of this kind.
    ///
    /// Searches the whole base where no such path is known of a base file with several names.
    pub(super) fn has_path(
        &self,
        node: &Node,
        is_such: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<bool> {
        match node {
            Node::Base { attr, .. } if is_linked(attr.kind, attr.nlink) => {
                self.has_base_path(attr.fileid, is_such)
            }
            Node::Base { path, .. } if !node.is_dir() => self.is_shown_at(path, is_such),
            Node::Delta(row) if !node.is_dir() => self.has_delta_path(row, is_such),
            _ => Ok(is_such(&self.place(node)?.merged)),
        }
    }

    fn has_delta_path(
        &self,
        row: &InodeRow,
        is_such: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<bool> {
        for (parent, name) in self.txn.names_of(row.ino)? {
            let dir = self.place_of_inode(parent, self.shown(parent)?)?;
            if is_such(&dir.merged.join(&name)) {
                return Ok(true);
            }
        }
        match &row.origin {
            Some(origin) if self.base_links_left(row)? > 0 => {
                self.has_base_path(origin.fileid, is_such)
            }
            _ => Ok(false),
        }
    }

    /// The same of a base file with several names.
    fn has_base_path(&self, id: FileId, is_such: &dyn Fn(&MergedPath) -> bool) -> Result<bool> {
        if let Some(path) = self.core.caches.location(id)
            && self.base_attr_at(&path)?.is_some_and(|attr| attr.fileid == id)
            && self.is_shown_at(&path, is_such)?
        {
            return Ok(true);
        }
        let mut found = Ok(false);
        self.core.base.find_linked(id, &mut |path| {
            found = self.is_shown_at(path, is_such);
            !matches!(found, Ok(false))
        })?;
        found
    }

    fn is_shown_at(&self, base: &BasePath, is_such: &dyn Fn(&MergedPath) -> bool) -> Result<bool> {
        let shown = self.shown_name(base)?;
        Ok(shown.is_some_and(|(dir, name)| is_such(&dir.merged.join(&name))))
    }
}

impl Edit<'_> {
    /// Refuses to move or remove a directory that something is mounted on or below
    /// (knfsd answers so too: there is no NFSv3 status for EBUSY).
    pub(super) fn check_unpinned(&self, node: &Node) -> Result<()> {
        if self.scope.pinned.contains(&node.fileid()) {
            return Err(FsError::Access.into());
        }
        Ok(())
    }
}
