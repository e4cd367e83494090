//! READ and READLINK, from either layer, without changing it.

use bytes::Bytes;

use crate::delta::InodeRow;
use crate::vfs::{Attr, Caller, FileKind, FsError, Locator, Outcome, ReadData};

use super::access::Want;
use super::copy_up_pending::read_content;
use super::error::Result;
use super::node::Node;
use super::resolve::View;

/// READ.
pub(super) fn read(
    view: &View<'_>,
    caller: &Caller,
    object: &Locator,
    offset: u64,
    count: u32,
) -> Outcome<ReadData, Option<Attr>> {
    let (node, attr) = match node_and_attr(view, object) {
        Ok(found) => found,
        Err(error) => return error.into_fs().into(),
    };
    match read_node(view, caller, &node, &attr, offset, count) {
        Ok((data, attr)) => Outcome::ok(data, Some(attr)),
        Err(error) => Outcome::err(error.into_fs(), Some(attr)),
    }
}

/// READLINK.
pub(super) fn read_link(view: &View<'_>, object: &Locator) -> Outcome<Bytes, Option<Attr>> {
    let (node, attr) = match node_and_attr(view, object) {
        Ok(found) => found,
        Err(error) => return error.into_fs().into(),
    };
    let target = target_of(view, &node);
    Outcome { result: target.map_err(|error| error.into_fs()), context: Some(attr) }
}

fn node_and_attr(view: &View<'_>, object: &Locator) -> Result<(Node, Attr)> {
    let node = view.node(object)?;
    let attr = view.attr(&node)?;
    Ok((node, attr))
}

fn read_node(
    view: &View<'_>,
    caller: &Caller,
    node: &Node,
    attr: &Attr,
    offset: u64,
    count: u32,
) -> Result<(ReadData, Attr)> {
    if attr.kind != FileKind::Regular {
        return Err(FsError::Invalid.into());
    }
    // Execute permission implies READ: a client reads a program to run it (RFC 1813 §4.4).
    if !Want::SEARCH.granted(caller, attr) {
        Want::READ.check_unless_owner(caller, attr)?;
    }
    match node {
        Node::Delta(row) => {
            let data = read_delta(view, row, offset, count)?;
            view.core.atimes.note(row, (view.core.clock)());
            Ok((data, attr.clone()))
        }
        Node::Base { path, .. } => {
            let mut buffer = view.core.buffers.take(span(attr.size, offset, count));
            let (got, now) = view.core.base.read(path, attr.fileid, offset, buffer.as_mut())?;
            let eof = offset.saturating_add(got as u64) >= now.size;
            let attr = Attr { size: now.size, mtime: now.mtime, ..attr.clone() };
            Ok((ReadData { data: buffer.into_bytes(got), eof }, attr))
        }
    }
}

fn read_delta(view: &View<'_>, row: &InodeRow, offset: u64, count: u32) -> Result<ReadData> {
    let length = span(row.size, offset, count);
    let mut buffer = view.core.buffers.take(length);
    if length > 0 {
        read_content(view, row, offset, buffer.as_mut())?;
    }
    let eof = offset.saturating_add(length as u64) >= row.size;
    Ok(ReadData { data: buffer.into_bytes(length), eof })
}

/// The target of a symbolic link.
pub(super) fn target_of(view: &View<'_>, node: &Node) -> Result<Bytes> {
    if node.kind() != FileKind::Symlink {
        return Err(FsError::Invalid.into());
    }
    match node {
        Node::Delta(row) => Ok(view.txn.symlink(row.ino)?.ok_or(FsError::Io)?.into()),
        Node::Base { path, .. } => Ok(view.core.base.read_link(path)?.into()),
    }
}

/// Number of bytes that a READ of `count` bytes at `offset` returns from a file of `size` bytes.
fn span(size: u64, offset: u64, count: u32) -> usize {
    size.saturating_sub(offset).min(u64::from(count)) as usize
}
