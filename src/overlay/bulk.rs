//! Creation and removal of many objects in one transaction, for commands.

use bytes::Bytes;

use crate::delta::MergedPath;
use crate::vfs::{Caller, CreateHow, FileKind, FsError, Locator, Name, NewNode, Outcome, SetAttr};
use crate::worker::Cost;

use super::Overlay;
use super::create::{create_in, make_node_in};
use super::edit::{Edit, Parent};
use super::error::Result;
use super::limits::BULK_BYTES;
use super::remove::{remove, rmdir};
use super::replace::replace_node;
use super::setattr::setattr;
use super::tools::tree::TreeView;
use super::write::write;

/// The object to create at a path.
#[derive(Debug, Clone)]
pub enum BulkContent {
    /// A directory; an existing one is kept, with its attributes.
    Directory,
    /// A regular file with this content, which replaces that of an existing file.
    File(Bytes),
    /// A symbolic link with this target; an existing link is replaced.
    Link(Bytes),
    /// The existing object, of any type: only its attributes are set.
    Any,
}

/// An object to create.
#[derive(Debug, Clone)]
pub struct BulkItem {
    /// Merged path.
    pub path: MergedPath,
    /// Type and content.
    pub content: BulkContent,
    /// Attributes to set.
    pub set: SetAttr,
}

/// A name to remove.
#[derive(Debug, Clone)]
pub struct Removal {
    /// The parent directory.
    pub dir: Locator,
    /// The name.
    pub name: Bytes,
    /// Whether the name is that of an empty directory.
    pub is_dir: bool,
    /// Upper bound of the bytes that the session stores for the object.
    pub bytes: u64,
}

impl Overlay {
    /// Creates `items` in order, in one transaction: all, or as many as fit into its limit of
    /// bytes. Returns their number, at least one.
    ///
    /// # Errors
    /// An item cannot be created, or the session is full: none is created.
    pub async fn make_all(
        &self,
        caller: &Caller,
        items: Vec<BulkItem>,
    ) -> std::result::Result<usize, FsError> {
        let bytes = items.iter().map(BulkItem::bytes).sum();
        let made = self.change(caller, Cost::Offload, bytes, false, move |edit| {
            let result = make_all(edit, &items).map_err(|error| error.into_fs());
            Outcome { result, context: () }
        });
        made.await?.value.result
    }

    /// Removes names in order, in one transaction: all, or as many as fit into its limit of
    /// bytes. Returns their number, at least one.
    ///
    /// # Errors
    /// A name cannot be removed: none is removed.
    pub async fn remove_all(
        &self,
        caller: &Caller,
        removals: Vec<Removal>,
    ) -> std::result::Result<usize, FsError> {
        let removed = self.change(caller, Cost::Offload, 0, false, move |edit| {
            let result = remove_all(edit, &removals).map_err(|error| error.into_fs());
            Outcome { result, context: () }
        });
        let removed = removed.await?.value.result;
        while self.is_much_removed() && self.keep_removed().await {}
        removed
    }
}

impl BulkItem {
    /// Bytes of the item's content.
    fn bytes(&self) -> usize {
        match &self.content {
            BulkContent::File(content) | BulkContent::Link(content) => content.len(),
            BulkContent::Directory | BulkContent::Any => 0,
        }
    }
}

fn make_all(edit: &mut Edit<'_>, items: &[BulkItem]) -> Result<usize> {
    let (mut dir, mut bytes) = (None, 0);
    for (at, item) in items.iter().enumerate() {
        if bytes > BULK_BYTES {
            return Ok(at);
        }
        // An item may set the attributes of a directory, so cached rows are outdated.
        edit.dirs.clear();
        bytes += item.bytes() as u64 + make_item(edit, item, &mut dir)?;
    }
    Ok(items.len())
}

fn remove_all(edit: &mut Edit<'_>, removals: &[Removal]) -> Result<usize> {
    let mut bytes = 0;
    for (at, removal) in removals.iter().enumerate() {
        if bytes > BULK_BYTES {
            return Ok(at);
        }
        edit.dirs.clear();
        match removal.is_dir {
            true => rmdir(edit, &removal.dir, &removal.name).result?,
            false => remove(edit, &removal.dir, &removal.name).result?,
        }
        bytes = bytes.saturating_add(removal.bytes);
    }
    Ok(removals.len())
}

/// Creates one item; `last` is the parent of the previous item. Returns an upper bound of the
/// bytes read from the base.
fn make_item(
    edit: &mut Edit<'_>,
    item: &BulkItem,
    last: &mut Option<(MergedPath, Locator)>,
) -> Result<u64> {
    let (Some(name), false) = (item.path.name(), matches!(item.content, BulkContent::Any)) else {
        let object = locator_at(edit, &item.path)?;
        return Ok(setattr(edit, &object, &item.set, None).result.map(|()| 0)?);
    };
    let above = item.path.parent();
    let dir = match last.take() {
        Some((path, dir)) if path == above => dir,
        _ => locator_at(edit, &above)?,
    };
    *last = Some((above, dir.clone()));
    let parent = edit.parent(&dir)?;
    let found = edit.view().child(&parent.place, &name)?.map(|child| child.node);
    match (&item.content, found) {
        (BulkContent::Directory, Some(node)) if node.is_dir() => {}
        (BulkContent::Directory, None) => {
            make_node_in(edit, &parent, &name, &NewNode::Directory, &item.set)?;
        }
        (BulkContent::File(content), None) => make_file(edit, &parent, &name, content, &item.set)?,
        (BulkContent::File(content), Some(node)) if node.kind() == FileKind::Regular => {
            let before = edit.view().attr(&node)?;
            let read = if node.row().is_none() { before.size } else { 0 };
            replace_node(edit, node, &before, content, &item.set)?;
            return Ok(read);
        }
        (BulkContent::Link(target), found) => {
            if found.is_some_and(|node| node.kind() == FileKind::Symlink) {
                remove(edit, &dir, name.as_bytes()).result?;
            }
            let parent = edit.parent(&dir)?;
            let link = NewNode::Symlink(target.clone());
            make_node_in(edit, &parent, &name, &link, &item.set)?;
        }
        _ => return Err(FsError::Exists.into()),
    }
    Ok(0)
}

/// Creates a file with content. The audit log records a CREATE, a WRITE and a SETATTR.
fn make_file(
    edit: &mut Edit<'_>,
    parent: &Parent,
    name: &Name,
    content: &[u8],
    set: &SetAttr,
) -> Result<()> {
    let mode = SetAttr { mode: set.mode, ..SetAttr::default() };
    let file = create_in(edit, parent, name, CreateHow::Guarded(mode))?.object;
    if !content.is_empty() {
        write(edit, &file, 0, content).result?;
    }
    let rest = SetAttr { mode: None, ..*set };
    Ok(setattr(edit, &file, &rest, None).result?)
}

/// The locator of the object at a path.
fn locator_at(edit: &Edit<'_>, path: &MergedPath) -> Result<Locator> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    Ok(tree.find(path)?.ok_or(FsError::NotFound)?.locator())
}
