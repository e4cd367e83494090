//! What the base had at a path before the session changed or hid it.

use crate::base::BasePath;
use crate::vfs::{FileId, FileKind, Time};

/// A row of `acetate_original`, without its content: a base file or symbolic link as it was when
/// the session first changed or hid it, or a base directory as it was when that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Where it was in the base.
    pub path: BasePath,
    /// The number that the export showed.
    pub fileid: FileId,
    /// A regular file, a symbolic link or a directory.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// git's name of the content, or of the link's target: the SHA-1 of `blob SIZE\0` and the
    /// bytes. `None` where not all of it was read.
    pub digest: Option<[u8; 20]>,
    /// Whether the row holds the content, or the link's target.
    pub has_content: bool,
}
