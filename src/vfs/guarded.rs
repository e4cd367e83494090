//! Guarded files, as those who guard them and those who store them speak of them. Paths are those
//! of the tree that is asked: an export's, or the part of a session that a scope shows.

use super::{Attr, Time};

/// A guarded file as everybody sees it.
#[derive(Debug, Clone)]
pub struct GuardedFile {
    /// Those of its paths that are guarded: several, if it has several names.
    pub paths: Vec<Vec<u8>>,
    /// Its attributes.
    pub attr: Attr,
}

/// What has to hold in the transaction that publishes a content.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The file's guarded paths, for which the content was validated; it is
    /// [`FsError::Guarded`](super::FsError::Guarded) if it has others.
    pub paths: Vec<Vec<u8>>,
    /// The file's ctime, if it may not have changed since; it is
    /// [`FsError::NotSync`](super::FsError::NotSync) if it has.
    pub ctime: Option<Time>,
    /// A time that the new ctime is later than: the last that its writer was shown.
    pub after: Time,
}
