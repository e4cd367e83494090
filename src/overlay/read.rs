//! READ and READLINK, from either layer, without changing it.

use bytes::Bytes;

use crate::delta::InodeRow;
use crate::vfs::{Attr, Caller, FileKind, FsError, Locator, Outcome, ReadData};

use super::access::Want;
use super::error::Result;
use super::node::Node;
use super::resolve::View;

impl View<'_> {
    /// READ.
    pub fn read(
        &self,
        caller: &Caller,
        object: &Locator,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        let (node, attr) = match self.node_and_attr(object) {
            Ok(found) => found,
            Err(error) => return error.into_fs().into(),
        };
        match self.read_node(caller, &node, &attr, offset, count) {
            Ok((data, attr)) => Outcome::ok(data, Some(attr)),
            Err(error) => Outcome::err(error.into_fs(), Some(attr)),
        }
    }

    /// READLINK.
    pub fn read_link(&self, object: &Locator) -> Outcome<Bytes, Option<Attr>> {
        let (node, attr) = match self.node_and_attr(object) {
            Ok(found) => found,
            Err(error) => return error.into_fs().into(),
        };
        let target = self.target_of(&node);
        Outcome { result: target.map_err(|error| error.into_fs()), context: Some(attr) }
    }

    fn node_and_attr(&self, object: &Locator) -> Result<(Node, Attr)> {
        let node = self.node(object)?;
        let attr = self.attr(&node)?;
        Ok((node, attr))
    }

    fn read_node(
        &self,
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
                let data = self.read_delta(row, offset, count)?;
                self.core.atimes.note(row, (self.core.clock)());
                Ok((data, attr.clone()))
            }
            Node::Base { path, .. } => {
                let mut buffer = self.core.buffers.take(span(attr.size, offset, count));
                let (got, now) = self.core.base.read(path, attr.fileid, offset, buffer.as_mut())?;
                let eof = offset.saturating_add(got as u64) >= now.size;
                let attr = Attr { size: now.size, mtime: now.mtime, ..attr.clone() };
                Ok((ReadData { data: buffer.into_bytes(got), eof }, attr))
            }
        }
    }

    fn read_delta(&self, row: &InodeRow, offset: u64, count: u32) -> Result<ReadData> {
        let length = span(row.size, offset, count);
        let mut buffer = self.core.buffers.take(length);
        if length > 0 {
            self.read_content(row, offset, buffer.as_mut())?;
        }
        let eof = offset.saturating_add(length as u64) >= row.size;
        Ok(ReadData { data: buffer.into_bytes(length), eof })
    }

    /// The target of a symbolic link.
    pub fn target_of(&self, node: &Node) -> Result<Bytes> {
        if node.kind() != FileKind::Symlink {
            return Err(FsError::Invalid.into());
        }
        match node {
            Node::Delta(row) => Ok(self.txn.symlink(row.ino)?.ok_or(FsError::Io)?.into()),
            Node::Base { path, .. } => Ok(self.core.base.read_link(path)?.into()),
        }
    }
}

/// Number of bytes that a READ of `count` bytes at `offset` returns from a file of `size` bytes.
fn span(size: u64, offset: u64, count: u32) -> usize {
    size.saturating_sub(offset).min(u64::from(count)) as usize
}
