//! The part of a session that one export shows, and what it allows there.

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

/// Which paths of a scope have guarded content. Paths are relative to the scope's root, which is
/// `/`.
pub trait GuardedPaths: Send + Sync {
    /// Whether a file at this path is guarded: its content changes only as a whole, after
    /// validation.
    fn is_guarded(&self, path: &[u8]) -> bool;

    /// Whether a path below this directory may be guarded.
    fn may_guard_below(&self, dir: &[u8]) -> bool;

    /// Whether only directories and regular files may be created at, or renamed to, this path.
    fn bars_links(&self, path: &[u8]) -> bool;
}

/// What an [`Overlay`](super::Overlay) shows of its session, and for which export.
#[derive(Clone, Default)]
pub struct Scope {
    /// The directory that clients see as the root; `None` for the whole tree. Identified by its
    /// handle, so a rename of the directory does not change the scope.
    pub root: Option<Locator>,
    /// Refuse every change.
    pub read_only: bool,
    /// Largest size of a file, in bytes; `None` if only the session's limit applies.
    pub file_bytes: Option<u64>,
    /// Directories that cannot be renamed or removed: the ancestors of mount points.
    pub pinned: HashSet<FileId>,
    /// Which files are guarded.
    pub guarded: Option<Arc<dyn GuardedPaths>>,
    /// Name of the export in the audit log.
    pub export: Option<Arc<str>>,
}

impl Scope {
    /// File number of the scope's root.
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
    /// Whether an object is visible in this scope by any of its names.
    pub(super) fn is_in_scope(&self, node: &Node) -> Result<bool> {
        let Some(root) = &self.scope.root else { return Ok(true) };
        if node.fileid() == root.fileid() {
            return Ok(true);
        }
        let root = self.found(root)?.ok_or(FsError::Stale)?;
        let root = self.place(&root)?;
        self.has_path(node, &|path| path.is_within(&root.merged))
    }

    /// Whether any visible path of an object satisfies `is_such`.
    ///
    /// For a hard-linked base file this may search the whole base.
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

    /// As [`Self::has_path`], for a base file with several names.
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
    /// [`FsError::Access`] for ancestors of mount points. NFSv3 has no status for EBUSY; knfsd
    /// also returns ACCES.
    pub(super) fn check_unpinned(&self, node: &Node) -> Result<()> {
        if self.scope.pinned.contains(&node.fileid()) {
            return Err(FsError::Access.into());
        }
        Ok(())
    }
}
