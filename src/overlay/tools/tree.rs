//! The merged tree in one snapshot, by paths, for tools. No mode bits are checked.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::base::{Base, BaseError, BasePath, Empty};
use crate::delta::{InodeRow, MergedPath, Origin, Reader, Store, StoreError};
use crate::vfs::{Attr, FileKind, FsError, Locator, Name, Time};

use super::lineage::Lineage;
use crate::overlay::Core;
use crate::overlay::copy_up_pending::{next_origin_data, read_content};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::limits::CopyLimits;
use crate::overlay::node::{DirPlace, Node};
use crate::overlay::read::target_of;
use crate::overlay::readdir::each_entry;
use crate::overlay::resolve::View;
use crate::overlay::writer_memo::WriterMemo;

/// Number of chunks that one query scans for the end of a data range.
const DATA_CHUNKS: u64 = 1024;

/// A session and its base, for reading.
pub struct Tree {
    core: Core,
    reader: Mutex<Box<dyn Reader>>,
    knows_base: bool,
}

/// The tree in one read snapshot: later commits do not show.
pub struct TreeView<'a> {
    pub(in crate::overlay) view: View<'a>,
    /// Whether the base is present; `false` after [`Tree::without_base`].
    pub(in crate::overlay) knows_base: bool,
}

/// An object of the merged tree, and the path at which it was found.
#[derive(Debug, Clone)]
pub struct TreeObject {
    pub(super) node: Node,
    path: MergedPath,
    attr: Attr,
    /// The ancestors, to detect cycles.
    above: Lineage,
}

/// What a directory shows of the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseOfDir {
    /// The base directory whose entries show in the directory, unless it is opaque.
    pub path: Option<BasePath>,
    /// Whether the directory has a mark that hides the entries of the base.
    pub is_opaque: bool,
}

impl Tree {
    /// Joins a session and its base.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn new(store: &dyn Store, base: Arc<dyn Base>) -> std::result::Result<Self, StoreError> {
        // A reader never stamps times, so the clock is not used.
        let core = Core::offline(base, Arc::new(Time::default), CopyLimits::default());
        Ok(Self { core, reader: Mutex::new(store.reader()?), knows_base: true })
    }

    /// The tree of a session whose base is missing: it shows the session's own objects only.
    pub fn without_base(store: &dyn Store) -> std::result::Result<Self, StoreError> {
        Ok(Self { knows_base: false, ..Self::new(store, Arc::new(Empty))? })
    }

    /// Runs `f` in a new read snapshot.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn with_tree<T>(
        &self,
        f: impl FnOnce(&TreeView<'_>) -> std::result::Result<T, FsError>,
    ) -> std::result::Result<T, FsError> {
        let mut reader = self.reader.lock();
        let mut f = Some(f);
        let mut value = Err(FsError::Io);
        // A memo must not outlive its snapshot.
        let memo = WriterMemo::new();
        let read = reader.read(&mut |txn| {
            if let Err(error) = txn.hold() {
                value = Err(crate::overlay::error::from_store(&error));
            } else if let Some(f) = f.take() {
                let view = View { txn, core: &self.core, memo: &memo, scope: &self.core.whole };
                value = f(&TreeView { view, knows_base: self.knows_base });
            }
        });
        read.map_err(|error| crate::overlay::error::from_store(&error)).and(value)
    }
}

impl TreeView<'_> {
    /// The root directory.
    ///
    /// # Errors
    /// All methods here fail if the session or the base cannot be read.
    pub fn root(&self) -> std::result::Result<TreeObject, FsError> {
        let root = self.view.node(&crate::vfs::Locator::ROOT);
        root.and_then(|node| self.object(node, MergedPath::root())).map_err(|e| e.into_fs())
    }

    /// The object at a path, or `None`. Symbolic links are not followed.
    pub fn find(&self, path: &MergedPath) -> std::result::Result<Option<TreeObject>, FsError> {
        let mut found = self.root()?;
        for name in path.names() {
            if found.attr.kind != FileKind::Directory {
                return Ok(None);
            }
            match self.child(&found, &name)? {
                Some(child) => found = child,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// What the base has at a path, whatever the session made of it. Symbolic links are not
    /// followed.
    ///
    /// # Errors
    /// The base cannot be read.
    pub fn find_in_base(
        &self,
        path: &BasePath,
    ) -> std::result::Result<Option<TreeObject>, FsError> {
        let found = self.base_node(path);
        found.map_err(|error| error.into_fs())
    }

    fn base_node(&self, path: &BasePath) -> Result<Option<TreeObject>> {
        let attr = match self.view.core.base.stat(path) {
            Ok(attr) => Box::new(attr),
            Err(BaseError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let node = Node::Base { path: path.clone(), attr };
        self.object(node, MergedPath::of_base(path)).map(Some)
    }

    /// The object that a name in a directory refers to.
    pub fn child(
        &self,
        dir: &TreeObject,
        name: &Name,
    ) -> std::result::Result<Option<TreeObject>, FsError> {
        self.child_of(dir, name).map_err(|error| error.into_fs())
    }

    /// What a directory shows of the base.
    pub fn shown_base(&self, dir: &TreeObject) -> std::result::Result<BaseOfDir, FsError> {
        let shown = || -> Result<BaseOfDir> {
            let place = self.view.place(&dir.node)?;
            let is_opaque = place.ino.map(|ino| self.view.is_opaque(ino)).transpose()?;
            let is_opaque = is_opaque.unwrap_or(false);
            Ok(BaseOfDir { path: place.base.clone(), is_opaque })
        };
        shown().map_err(|error| error.into_fs())
    }

    fn child_of(&self, dir: &TreeObject, name: &Name) -> Result<Option<TreeObject>> {
        self.child_in(dir, &dir.within()?, name)
    }

    fn child_in(
        &self,
        dir: &TreeObject,
        within: &Lineage,
        name: &Name,
    ) -> Result<Option<TreeObject>> {
        let place = self.view.place(&dir.node)?;
        let Some(child) = self.view.child(&place, name)? else { return Ok(None) };
        let above = within.clone();
        Ok(Some(TreeObject { above, ..self.object(child.node, dir.path.join(name))? }))
    }

    /// The entries of a directory, ordered by the bytes of their names.
    ///
    /// [`FsError::Loop`] if the directory is among its own ancestors.
    pub fn children(
        &self,
        dir: &TreeObject,
    ) -> std::result::Result<Vec<(Name, TreeObject)>, FsError> {
        self.children_of(dir, b"", usize::MAX).map_err(|error| error.into_fs())
    }

    /// The first `most` entries whose names begin with `prefix`, in the same order. The attributes
    /// of other entries are not read.
    ///
    /// # Errors
    /// As [`Self::children`].
    pub fn children_beginning(
        &self,
        dir: &TreeObject,
        prefix: &[u8],
        most: usize,
    ) -> std::result::Result<Vec<(Name, TreeObject)>, FsError> {
        self.children_of(dir, prefix, most).map_err(|error| error.into_fs())
    }

    fn children_of(
        &self,
        dir: &TreeObject,
        prefix: &[u8],
        most: usize,
    ) -> Result<Vec<(Name, TreeObject)>> {
        if dir.attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory.into());
        }
        let within = dir.within()?;
        let place = self.view.place(&dir.node)?;
        let mut names = Vec::new();
        each_entry(&self.view, &place, &mut |entry| {
            if entry.name.as_bytes().starts_with(prefix) {
                names.push(entry.name);
            }
        })?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        names.truncate(most);
        let mut children = Vec::with_capacity(names.len());
        for name in names {
            // Skip a base entry that was removed after it was listed.
            if let Some(child) = self.child_in(dir, &within, &name)? {
                children.push((name, child));
            }
        }
        Ok(children)
    }

    /// Reads a regular file from byte `offset` into `buffer`; returns the number of bytes read.
    pub fn read(
        &self,
        file: &TreeObject,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, FsError> {
        self.read_node(file, offset, buffer).map_err(|error| error.into_fs())
    }

    pub(super) fn read_node(
        &self,
        file: &TreeObject,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        match &file.node {
            _ if file.attr.kind != FileKind::Regular => Err(FsError::Invalid.into()),
            Node::Delta(row) => {
                let left = row.size.saturating_sub(offset);
                let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if length > 0 {
                    read_content(&self.view, row, offset, &mut buffer[..length])?;
                }
                Ok(length)
            }
            Node::Base { path, attr } => {
                Ok(self.view.core.base.read(path, attr.fileid, offset, buffer)?.0)
            }
        }
    }

    /// The next range of a regular file, at or after byte `offset`, that is not a hole; `None` if
    /// only zeros follow. Consecutive ranges may be adjacent.
    pub fn next_data(
        &self,
        file: &TreeObject,
        offset: u64,
    ) -> std::result::Result<Option<Range<u64>>, FsError> {
        self.data_of(file, offset).map_err(|error| error.into_fs())
    }

    fn data_of(&self, file: &TreeObject, offset: u64) -> Result<Option<Range<u64>>> {
        let size = file.attr.size;
        let found = match &file.node {
            _ if file.attr.kind != FileKind::Regular || offset >= size => None,
            Node::Delta(row) => self.delta_data(row, offset)?,
            Node::Base { path, attr } => {
                let found = self.view.core.base.next_data(path, attr.fileid, offset)?;
                found.map(|(start, end)| start..end)
            }
        };
        let within = found.map(|data| data.start.max(offset)..data.end.min(size));
        Ok(within.filter(|data| !data.is_empty()))
    }

    /// The next range of stored chunks or of pending base content, whichever starts first.
    fn delta_data(&self, row: &InodeRow, offset: u64) -> Result<Option<Range<u64>>> {
        let (txn, chunk) = (self.view.txn, self.view.txn.chunk_bytes());
        let mut found = None;
        if let Some(first) = txn.next_stored_chunk(row.ino, offset / chunk)? {
            let run = first..first.saturating_add(DATA_CHUNKS);
            let stored = txn.stored_chunks(row.ino, &run)?;
            let length = run.zip(stored).take_while(|(index, stored)| index == stored).count();
            let end = first.saturating_add(length as u64);
            found = Some(first.saturating_mul(chunk)..end.saturating_mul(chunk));
        }
        let Some(pending) = row.copy_up.filter(|pending| offset < pending.end) else {
            return Ok(found);
        };
        let from = offset.max(pending.next);
        let base = next_origin_data(&self.view, row, from, pending.end)?;
        let base = base.map(|(start, end)| start..end.min(pending.end));
        Ok([found, base].into_iter().flatten().min_by_key(|data| data.start.max(offset)))
    }

    /// The target of a symbolic link.
    pub fn target(&self, link: &TreeObject) -> std::result::Result<Bytes, FsError> {
        target_of(&self.view, &link.node).map_err(|error| error.into_fs())
    }

    pub(super) fn object(&self, node: Node, path: MergedPath) -> Result<TreeObject> {
        let attr = self.view.own_attr(&node)?;
        Ok(TreeObject { node, path, attr, above: Lineage::default() })
    }
}

impl TreeObject {
    /// The ancestors of this directory's entries.
    fn within(&self) -> Result<Lineage> {
        match &self.node {
            Node::Delta(row) => self.above.enter(row.ino),
            Node::Base { .. } => Ok(self.above.clone()),
        }
    }

    /// The path at which the object was found.
    pub fn path(&self) -> &MergedPath {
        &self.path
    }

    /// The attributes, as the export shows them. A directory keeps the times of its session row,
    /// even if the base directory changed later.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Identifies the object uniquely. The file number alone does not: the host may reuse the
    /// number of a removed object.
    pub fn locator(&self) -> Locator {
        self.node.locator()
    }

    /// The inode row, if the object is in the session.
    pub fn row(&self) -> Option<&InodeRow> {
        self.node.row()
    }

    /// The origin, if the object was copied up.
    pub fn origin(&self) -> Option<&Origin> {
        self.row()?.origin.as_ref()
    }

    /// The path in the base, if the object is not in the session.
    pub fn base_path(&self) -> Option<&BasePath> {
        match &self.node {
            Node::Delta(_) => None,
            Node::Base { path, .. } => Some(path),
        }
    }
}

/// The directory that shows at a merged path.
pub(in crate::overlay) fn visible_dir(
    edit: &Edit<'_>,
    path: &MergedPath,
) -> Result<Option<Arc<DirPlace>>> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    match tree.find(path)? {
        Some(found) if found.attr().kind == FileKind::Directory => {
            Ok(Some(tree.view.place(&found.node)?))
        }
        _ => Ok(None),
    }
}
