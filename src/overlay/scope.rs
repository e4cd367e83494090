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

/// Whether an object is visible in this scope by any of its names.
pub(super) fn is_in_scope(view: &View<'_>, node: &Node) -> Result<bool> {
    let Some(root) = &view.scope.root else { return Ok(true) };
    if node.fileid() == root.fileid() {
        return Ok(true);
    }
    let root = view.found(root)?.ok_or(FsError::Stale)?;
    let root = view.place(&root)?;
    has_path(view, node, &|path| path.is_within(&root.merged))
}

/// Whether any visible path of an object satisfies `is_such`.
///
/// For a hard-linked base file this may search the whole base.
pub(super) fn has_path(
    view: &View<'_>,
    node: &Node,
    is_such: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    match node {
        Node::Base { attr, .. } if is_linked(attr.kind, attr.nlink) => {
            has_base_path(view, attr.fileid, is_such)
        }
        Node::Base { path, .. } if !node.is_dir() => is_shown_at(view, path, is_such),
        Node::Delta(row) if !node.is_dir() => has_delta_path(view, row, is_such),
        _ => Ok(is_such(&view.place(node)?.merged)),
    }
}

fn has_delta_path(
    view: &View<'_>,
    row: &InodeRow,
    is_such: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    for (parent, name) in view.txn.names_of(row.ino)? {
        let dir = view.place_of_inode(parent, view.shown(parent)?)?;
        if is_such(&dir.merged.join(&name)) {
            return Ok(true);
        }
    }
    match &row.origin {
        Some(origin) if view.base_links_left(row)? > 0 => {
            has_base_path(view, origin.fileid, is_such)
        }
        _ => Ok(false),
    }
}

/// As [`View<'_>::has_path`], for a base file with several names.
fn has_base_path(
    view: &View<'_>,
    id: FileId,
    is_such: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    if let Some(path) = view.core.caches.location(id)
        && view.base_attr_at(&path)?.is_some_and(|attr| attr.fileid == id)
        && is_shown_at(view, &path, is_such)?
    {
        return Ok(true);
    }
    let mut found = Ok(false);
    view.core.base.find_linked(id, &mut |path| {
        found = is_shown_at(view, path, is_such);
        !matches!(found, Ok(false))
    })?;
    found
}

fn is_shown_at(
    view: &View<'_>,
    base: &BasePath,
    is_such: &dyn Fn(&MergedPath) -> bool,
) -> Result<bool> {
    let shown = view.shown_name(base)?;
    Ok(shown.is_some_and(|(dir, name)| is_such(&dir.merged.join(&name))))
}

/// [`FsError::Access`] for ancestors of mount points. NFSv3 has no status for EBUSY; knfsd
/// also returns ACCES.
pub(super) fn check_unpinned(edit: &Edit<'_>, node: &Node) -> Result<()> {
    if edit.scope.pinned.contains(&node.fileid()) {
        return Err(FsError::Access.into());
    }
    Ok(())
}
