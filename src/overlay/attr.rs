//! Attributes as clients see them.

use crate::base::{BaseAttr, BaseError};
use crate::delta::{InodeRow, content_bytes};
use crate::vfs::{Attr, FileId, FileKind, Locator, Time};

use super::error::Result;
use super::node::{DirPlace, Node, is_linked};
use super::readdir::each_entry;
use super::resolve::View;

/// Size shown for a directory created in the delta, in bytes: one block, as on a local disk.
const DIR_BYTES: u64 = 4096;

/// Unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Granularity of filesystem timestamps, in ns: a stamp may lag the clock by one kernel tick.
const TICK_NANOS: u32 = 10_000_000;

impl View<'_> {
    /// The attributes of a visible object.
    ///
    /// A directory in both layers shows the later change of the two. Otherwise clients would keep
    /// stale entries cached after a change in the base.
    pub fn attr(&self, node: &Node) -> Result<Attr> {
        let attr = self.own_attr(node)?;
        let Some(half) = self.base_half(node).filter(|half| is_later(half, &attr)) else {
            return Ok(attr);
        };
        // One step later than the base's ctime, so that a discard of the session's half shows as a
        // change.
        let ctime = half.ctime.max(attr.ctime).next();
        let mtime = if half.mtime > attr.mtime { half.mtime.next() } else { attr.mtime };
        Ok(Attr { mtime, ctime, ..attr })
    }

    /// The base attributes behind a session directory, unless unchanged since copy-up. If the base
    /// directory is gone, those of its closest existing ancestor, whose change removed it.
    fn base_half(&self, node: &Node) -> Option<BaseAttr> {
        let row = node.row().filter(|row| row.kind == FileKind::Directory)?;
        let place = self.place(node).ok()?;
        let copied = || row.origin.as_ref().map(|origin| origin.path.clone());
        let mut path = place.base.clone().or_else(copied)?;
        loop {
            match self.core.base.stat(&path) {
                Ok(attr) if attr.kind == FileKind::Directory => {
                    return Some(attr).filter(|attr| !is_as_copied(row, attr));
                }
                Ok(_) | Err(BaseError::NotFound) => path = path.split()?.0,
                Err(_) => return None,
            }
        }
    }

    /// As [`Self::attr`], but a session directory shows only the times of its own row.
    pub fn own_attr(&self, node: &Node) -> Result<Attr> {
        match node {
            Node::Delta(row) => self.delta_attr(row),
            Node::Base { attr, .. } => self.base_attr(node, attr),
        }
    }

    /// GETATTR.
    pub fn attr_of(&self, object: &Locator) -> Result<Attr> {
        self.attr(&self.node(object)?)
    }

    /// The attributes of a delta object, with the times of its row. After a change they describe
    /// that change alone, not concurrent changes of the base.
    pub fn delta_attr(&self, row: &InodeRow) -> Result<Attr> {
        let (size, used) = match row.kind {
            FileKind::Directory => {
                // The size from before copy-up: a jump in size would look like a change.
                let bytes = row.origin.as_ref().map_or(DIR_BYTES, |origin| origin.size);
                (bytes, bytes)
            }
            FileKind::Regular => {
                let stored = content_bytes(row.size, row.holes, self.txn.chunk_bytes());
                (row.size, stored.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES))
            }
            _ => (row.size, 0),
        };
        Ok(Attr {
            kind: row.kind,
            mode: row.mode,
            nlink: self.delta_nlink(row)?,
            uid: row.uid,
            gid: row.gid,
            size,
            used,
            rdev: row.rdev,
            fsid: self.core.fsid,
            fileid: row.fileid(),
            atime: self.core.atimes.shown(row),
            mtime: row.mtime,
            ctime: row.ctime,
        })
    }

    /// A file: its names in both layers. A directory: 2 + visible subdirectories.
    fn delta_nlink(&self, row: &InodeRow) -> Result<u32> {
        match (row.kind, row.subdirs) {
            (FileKind::Directory, Some(subdirs)) => Ok(subdirs.saturating_add(2)),
            (FileKind::Directory, None) => {
                let place = self.place_of_inode(row.ino, row.fileid())?;
                Ok(self.count_subdirs(&place)?.saturating_add(2))
            }
            _ => Ok(row.nlink.saturating_add(self.base_links_left(row)?)),
        }
    }

    /// Number of visible names that a copied-up file has only in the base.
    pub fn base_links_left(&self, row: &InodeRow) -> Result<u32> {
        let Some(origin) = &row.origin else { return Ok(0) };
        if !is_linked(row.kind, origin.nlink) {
            return Ok(0);
        }
        let (hidden, _) = self.txn.hidden_links(origin.fileid)?;
        Ok(origin.nlink.saturating_sub(hidden))
    }

    fn base_attr(&self, node: &Node, attr: &BaseAttr) -> Result<Attr> {
        let (mut nlink, mut ctime) = (attr.nlink, attr.ctime);
        if is_linked(attr.kind, attr.nlink) {
            let (hidden, since) = self.txn.hidden_links(attr.fileid)?;
            nlink = nlink.saturating_sub(hidden).max(1);
            ctime = ctime.max(since.unwrap_or(ctime));
        } else if attr.kind == FileKind::Directory && nlink < 2 {
            // Filesystems that do not count subdirectories report 1.
            nlink = self.count_subdirs(&*self.place(node)?)?.saturating_add(2);
        }
        Ok(Attr { nlink, ctime, ..self.as_in_base(node.fileid(), attr) })
    }

    /// Attributes of a base object, without the session's effects on link count and ctime.
    pub fn as_in_base(&self, fileid: FileId, attr: &BaseAttr) -> Attr {
        Attr {
            kind: attr.kind,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            used: attr.used,
            rdev: attr.rdev,
            fsid: self.core.fsid,
            fileid,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
        }
    }

    /// Counts the visible subdirectories; `known` is the count if the base denies access.
    pub fn count_subdirs_or(&self, place: &DirPlace, known: Option<u32>) -> Result<Option<u32>> {
        match self.count_subdirs(place) {
            Err(error) if error.is_denied() => Ok(known),
            counted => counted.map(Some),
        }
    }

    /// Counts the visible subdirectories. O(entries), unless the directory shows the base's entries
    /// unchanged and the base's filesystem counts subdirectories.
    pub fn count_subdirs(&self, place: &DirPlace) -> Result<u32> {
        let changed = match place.ino {
            Some(ino) => self.txn.has_dentries(ino)?,
            None => false,
        };
        if let Some(base) = &place.base
            && !changed
            && self.txn.whiteouts_in(&place.merged)?.is_empty()
            && let Some(attr) = self.base_attr_at(base)?
            && let Some(subdirs) = attr.nlink.checked_sub(2)
        {
            return Ok(subdirs);
        }
        let mut count: u32 = 0;
        each_entry(self, place, &mut |entry| {
            if entry.kind == Some(FileKind::Directory) {
                count = count.saturating_add(1);
            }
        })?;
        Ok(count)
    }
}

/// Whether a base directory is unchanged since copy-up.
fn is_as_copied(row: &InodeRow, attr: &BaseAttr) -> bool {
    row.origin.as_ref().is_some_and(|origin| {
        (origin.fileid, origin.mtime, origin.ctime) == (attr.fileid, attr.mtime, attr.ctime)
    })
}

/// Whether the base directory may have changed after the ctime of its session row.
fn is_later(half: &BaseAttr, own: &Attr) -> bool {
    half.ctime != own.ctime && tick_after(half.ctime) > own.ctime
}

/// The latest time at which an event with the filesystem timestamp `stamp` can have happened.
pub(super) fn tick_after(stamp: Time) -> Time {
    if stamp.nanos == 0 {
        // The filesystem may count in units of one or two seconds.
        return Time { secs: stamp.secs.saturating_add(2), nanos: 0 };
    }
    let nanos = stamp.nanos.saturating_add(TICK_NANOS);
    let secs = stamp.secs.saturating_add(i64::from(nanos / 1_000_000_000));
    Time { secs, nanos: nanos % 1_000_000_000 }
}
