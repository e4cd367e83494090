//! Objects and directory places of the merged tree.

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath};
use crate::vfs::{FileId, FileKind, Locator};

use super::trail::digest_of;

/// An object of the merged tree.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// The object is in the delta.
    Delta(Box<InodeRow>),
    /// The object is in the base and was not copied up.
    Base {
        /// Path in the base.
        path: BasePath,
        /// Attributes in the base.
        attr: Box<BaseAttr>,
    },
}

impl Node {
    /// The file type.
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Delta(row) => row.kind,
            Self::Base { attr, .. } => attr.kind,
        }
    }

    /// The inode row; `None` for a base object.
    pub fn row(&self) -> Option<&InodeRow> {
        match self {
            Self::Delta(row) => Some(row),
            Self::Base { .. } => None,
        }
    }

    /// Whether the object is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// The file number that the export shows.
    pub fn fileid(&self) -> FileId {
        match self {
            Self::Delta(row) => row.fileid(),
            Self::Base { path, .. } if path.is_root() => FileId::ROOT,
            Self::Base { attr, .. } => attr.fileid,
        }
    }

    /// The object's identity in a handle; equal before and after copy-up.
    pub fn locator(&self) -> Locator {
        match self {
            Self::Delta(row) => match &row.origin {
                None => Locator::Delta(row.fileid()),
                Some(origin) if is_linked(row.kind, origin.nlink) => {
                    Locator::BaseLinked(origin.fileid)
                }
                Some(origin) => Locator::Base(origin.fileid, digest_of(&origin.path)),
            },
            Self::Base { path, .. } if path.is_root() => Locator::ROOT,
            Self::Base { attr, .. } if is_linked(attr.kind, attr.nlink) => {
                Locator::BaseLinked(attr.fileid)
            }
            Self::Base { path, attr } => Locator::Base(attr.fileid, digest_of(path)),
        }
    }
}

/// Whether a base object of this kind and link count has several names.
pub(super) fn is_linked(kind: FileKind, nlink: u32) -> bool {
    kind != FileKind::Directory && nlink > 1
}

/// Cache key of a directory. The file number alone is not unique: after the host removes a
/// directory that was copied up, it may give that directory's number to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirId {
    /// The file number that the export shows.
    pub fileid: FileId,
    /// The inode in the delta.
    pub ino: Option<Ino>,
}

/// The paths of a visible directory in the delta, the merged tree and the base.
#[derive(Debug, Clone)]
pub(super) struct DirPlace {
    /// The file number that the export shows.
    pub fileid: FileId,
    /// The inode in the delta; `None` before copy-up.
    pub ino: Option<Ino>,
    /// The path in the merged tree: the key of whiteouts below the directory.
    pub merged: MergedPath,
    /// The base directory whose entries show through.
    pub base: Option<BasePath>,
    /// No row mentions any entry of the directory: all entries come from the base. Set only with
    /// caches, and only for directories without an inode in the delta.
    pub untouched_by_delta: bool,
    /// The directory was copied up, and the base directory is missing. The base directory may
    /// return, so results that depend on its absence are not cached.
    pub base_missing: bool,
}

impl DirPlace {
    /// The cache key.
    pub fn id(&self) -> DirId {
        DirId { fileid: self.fileid, ino: self.ino }
    }

    /// Whether an apply that renames base directories changes the entries that this directory
    /// shows: its base directory is at another path, or missing.
    pub fn is_affected_by_apply(&self) -> bool {
        self.base_missing
            || self.base.as_ref().is_some_and(|base| !is_same_path(base, &self.merged))
    }

    /// Bytes of the paths, for the size bound of a cache.
    pub fn path_bytes(&self) -> usize {
        let base = self.base.as_ref().map_or(0, |base| base.as_bytes().len());
        self.merged.as_bytes().len() + base
    }
}

/// The object that a name in a directory refers to.
#[derive(Debug, Clone)]
pub(super) struct Child {
    /// The object.
    pub node: Node,
    /// Whether the name has a dentry in the delta. Without one, the name is the base's; the object
    /// may still be in the delta, copied up through another hard link.
    pub has_dentry: bool,
}

/// Whether a base path and a merged path have the same components.
pub(super) fn is_same_path(base: &BasePath, merged: &MergedPath) -> bool {
    *base.as_bytes() == merged.as_bytes()[1..]
}
