//! Guarded files: the types that validation and storage share. Paths are relative to the tree of
//! the call: an export, or the part of a session that a scope shows.

use super::{Attr, Time};

/// A guarded file in its published state.
#[derive(Debug, Clone)]
pub struct GuardedFile {
    /// Its guarded paths; several for a hard-linked file.
    pub paths: Vec<Vec<u8>>,
    /// Its attributes.
    pub attr: Attr,
}

/// Preconditions of publishing new content, checked in the same transaction.
#[derive(Debug, Clone)]
pub struct PublishPreconditions {
    /// The guarded paths for which the content was validated. If the file has others, publishing
    /// fails with [`FsError::Guarded`](super::FsError::Guarded).
    pub paths: Vec<Vec<u8>>,
    /// The ctime that the file must have, if any. Otherwise publishing fails with
    /// [`FsError::NotSync`](super::FsError::NotSync).
    pub ctime: Option<Time>,
    /// A lower bound of the new ctime: the last time that the writer was shown.
    pub after: Time,
    /// Number of changes of the whole tree when the content was begun. If there was another since,
    /// publishing fails with [`FsError::Invalid`](super::FsError::Invalid).
    pub tree_changes: u64,
}
