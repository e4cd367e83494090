//! What the base had at a path before the session first changed or hid it.

use crate::base::BasePath;
use crate::vfs::{FileId, FileKind, Time};

/// A row of `acetate_original`, without its content. For a file or symbolic link: its state when
/// the session first changed or hid it. For a directory: its state when the session removed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Its base path.
    pub path: BasePath,
    /// The file number that the export showed.
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
    /// git's object name: the SHA-1 of `blob SIZE\0` and the content or link target. `None` if the
    /// content was not read completely.
    pub digest: Option<[u8; 20]>,
    /// Whether the row holds the content, or the link's target.
    pub has_content: bool,
}
