//! What a name or a handle leads to.

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath};
use crate::vfs::{FileId, FileKind, Locator};

use super::trail::trail_of;

/// An object of the merged tree.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// It is in the delta.
    Delta(Box<InodeRow>),
    /// It is in the base, untouched.
    Base {
        /// Where.
        path: BasePath,
        /// What it is.
        attr: Box<BaseAttr>,
    },
}

impl Node {
    /// The object's type.
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Delta(row) => row.kind,
            Self::Base { attr, .. } => attr.kind,
        }
    }

    /// Its row, if it is in the session.
    pub fn row(&self) -> Option<&InodeRow> {
        match self {
            Self::Delta(row) => Some(row),
            Self::Base { .. } => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// The number that the export shows.
    pub fn fileid(&self) -> FileId {
        match self {
            Self::Delta(row) => row.fileid(),
            Self::Base { path, .. } if path.is_root() => FileId::ROOT,
            Self::Base { attr, .. } => attr.fileid,
        }
    }

    /// What the object's handle says: the same before and after copy-up.
    pub fn locator(&self) -> Locator {
        match self {
            Self::Delta(row) => match &row.origin {
                None => Locator::Delta(row.fileid()),
                Some(origin) if is_linked(row.kind, origin.nlink) => {
                    Locator::BaseLinked(origin.fileid)
                }
                Some(origin) => Locator::Base(origin.fileid, trail_of(&origin.path)),
            },
            Self::Base { path, .. } if path.is_root() => Locator::ROOT,
            Self::Base { attr, .. } if is_linked(attr.kind, attr.nlink) => {
                Locator::BaseLinked(attr.fileid)
            }
            Self::Base { path, attr } => Locator::Base(attr.fileid, trail_of(path)),
        }
    }
}

/// Whether a base object of this kind and link count has names besides the one at hand.
pub(super) fn is_linked(kind: FileKind, nlink: u32) -> bool {
    kind != FileKind::Directory && nlink > 1
}

/// What caches know a directory by. Its number alone is not enough: once the host has removed a
/// directory that was copied up, it may give the same number to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirId {
    /// The number that the export shows.
    pub fileid: FileId,
    /// Its inode in the delta.
    pub ino: Option<Ino>,
}

/// Where a visible directory is in each of the trees.
#[derive(Debug, Clone)]
pub(super) struct DirPlace {
    /// The number that the export shows.
    pub fileid: FileId,
    /// Its inode in the delta, once it has one.
    pub ino: Option<Ino>,
    /// Its path in the merged tree: the key of whiteouts below it.
    pub merged: MergedPath,
    /// The base directory whose entries show through it.
    pub base: Option<BasePath>,
    /// The rows say nothing of any of its entries: all of them are the base's. Not known
    /// where caches are not used.
    pub is_plain: bool,
    /// It was copied up, and the base has no directory there by now. One may come back: what
    /// follows from its absence is not remembered.
    pub is_lost: bool,
}

impl DirPlace {
    /// What caches know it by.
    pub fn id(&self) -> DirId {
        DirId { fileid: self.fileid, ino: self.ino }
    }

    /// Whether renames in the base change what it shows: its base directory is at another path, or
    /// missing.
    pub fn is_affected_by_apply(&self) -> bool {
        self.is_lost || self.base.as_ref().is_some_and(|base| !is_same_path(base, &self.merged))
    }

    /// What remembering it takes: the length of its paths, in bytes.
    pub fn path_bytes(&self) -> usize {
        let base = self.base.as_ref().map_or(0, |base| base.as_bytes().len());
        self.merged.as_bytes().len() + base
    }
}

/// What a name in a directory leads to.
#[derive(Debug, Clone)]
pub(super) struct Child {
    /// The object.
    pub node: Node,
    /// Whether the name is an entry of the delta; if not, it is one of the base, though the
    /// object may be in the delta: a base file copied up by another of its names.
    pub has_dentry: bool,
}

/// Whether a path in the base is the same as one in the merged tree.
pub(super) fn is_same_path(base: &BasePath, merged: &MergedPath) -> bool {
    *base.as_bytes() == merged.as_bytes()[1..]
}
