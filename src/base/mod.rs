//! The read-only lower layer.
//!
//! [`Base`] is the overlay's whole view of it: objects by path, their attributes, listings and
//! content. Nothing here can write, and nothing here leaves the base directory.
//!
//! Implementations: [`HostDir`], a directory of this machine; [`Empty`], for a session without a
//! base; [`Hiding`], another base without hidden paths; [`WatchedBase`], another base whose calls
//! are watched for hanging.
//!
//! All methods block. Inline operations call them on network threads, unless the base is slow; all
//! others call them on the worker's threads.

mod empty;
mod error;
mod filtered;
mod host_dir;
mod listing_lock;
mod path;
mod watched;

use std::sync::Arc;

use crate::vfs::{Device, FileId, FileKind, Name, Time};

pub use empty::Empty;
pub use error::BaseError;
pub use filtered::Hiding;
pub use host_dir::{Beneath, HostDir, HostDirOptions, shown_mode};
pub use listing_lock::{ListingLock, ListingLockGuard};
pub use path::BasePath;
pub use watched::{MAX_STUCK_CALLS, WatchedBase};

/// A read-only tree. Every path is relative to its root; symbolic links are never followed.
pub trait Base: Send + Sync + 'static {
    /// Discards cached directories and open files, because we have just changed the base.
    fn invalidate(&self);

    /// Closes cached directories and files. Waits only a short time for a filesystem that hangs:
    /// they are closed by another thread then, or stay in the cache.
    fn rest(&self) {}

    /// Whether it should not be closed to be opened again later: its filesystem does not close the
    /// files of others, so each time more of them would stay open.
    fn must_stay_open(&self) -> bool {
        false
    }

    /// Whether another machine or process serves the base's filesystem, so that any call may hang.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether the base has the journal of an unfinished `acetate apply`, of any session. Until it
    /// is finished, a directory may be at its old path, at its new path, or in the staging.
    fn has_unfinished_apply(&self) -> Result<bool, BaseError>;

    /// Returns an object's attributes, without following a symbolic link.
    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError>;

    /// Lists a directory, without `.` and `..`, in no particular order. A large listing may have to
    /// wait until another one leaves memory ([`BaseError::Busy`]).
    ///
    /// The entries are a snapshot, and may come from a bounded cache that is checked against the
    /// directory's mtime and ctime. A mount point lists as empty.
    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError>;

    /// Opens the directory `path` to look at many of its entries.
    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError>;

    /// Reads a symbolic link's target.
    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError>;

    /// Reads up to `buffer.len()` bytes of the regular file `path` at byte `offset`.
    ///
    /// Returns how many bytes were read (fewer only at the end of the file), and the file's
    /// attributes after the read. `id` is the expected object: if another object is at the path
    /// now, this fails with [`BaseError::Changed`].
    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError>;

    /// Returns the next range of bytes (start, end) at or after byte `offset` that is not a hole;
    /// `None` if there is none. Without support by the host filesystem, the rest of the file is one
    /// range.
    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError>;

    /// Searches the whole tree for the file with number `id`, and returns the first path that is
    /// `wanted`.
    ///
    /// Only needed for a hard-linked base file: when its handle outlived a restart and none of its
    /// names was looked up again, or when its known name is removed. Implementations keep a bounded
    /// index of what a search saw, so that the cost is paid once. `wanted` must not start a search.
    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError>;
}

/// An open directory whose entries are looked at.
pub trait Entries {
    /// Returns the attributes of the entry `name`, which [`Base::list`] lists with the number `id`,
    /// as [`Base::stat`] does. The attributes may be up to a second old, if no newer ones were
    /// returned since.
    fn stat(&self, name: &Name, id: FileId) -> Result<BaseAttr, BaseError>;
}

/// A base object's attributes, from `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseAttr {
    /// Type.
    pub kind: FileKind,
    /// Permission bits (12 bits). If the object has an access ACL, without bits that grant what the
    /// ACL denies.
    pub mode: u32,
    /// Hard links on the host.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size, in bytes.
    pub size: u64,
    /// Space used on disk, in bytes.
    pub used: u64,
    /// Device number of a special file.
    pub rdev: Device,
    /// Host device number of the filesystem that the object is on.
    pub dev: u64,
    /// Host inode number.
    pub ino: u64,
    /// The file number that the export shows: the host's inode number if possible, otherwise a hash
    /// of it in a range of its own (see [`hash_fileid`]). The base's root has its host number here
    /// too.
    pub fileid: FileId,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

/// A snapshot of a directory's entries.
#[derive(Debug, Default)]
pub struct Listing {
    /// The entries; names are unique.
    pub entries: Vec<ListedEntry>,
    /// Held by a large listing that is not in a cache, as long as the listing is in memory.
    pub turn: Option<Arc<ListingLockGuard>>,
}

/// One entry of a [`Listing`].
#[derive(Debug, Clone)]
pub struct ListedEntry {
    /// Name in the directory.
    pub name: Name,
    /// The file number that [`Base::stat`] returns for it.
    pub fileid: FileId,
    /// The type, if the host returned one with the entry.
    pub kind: Option<FileKind>,
}

/// The directory at the top of a base in which `acetate apply` prepares what it will place in the
/// base. The export does not show it.
pub const STAGING: &str = ".acetate-apply";

/// The file in [`STAGING`] that lists the pending changes. It exists before the first change of the
/// base, and until the session has recorded the result; it is written atomically.
pub const STAGING_JOURNAL: &str = "journal";

/// The directory at the top of a base for objects that `acetate apply` moved away and could not put
/// back. The export does not show it.
pub const KEPT: &str = ".acetate-kept";

/// acetate's own paths at the top of a base: [`STAGING`] and [`KEPT`].
pub fn own_paths() -> impl Iterator<Item = BasePath> {
    [STAGING, KEPT].into_iter().filter_map(|name| BasePath::from_bytes(name.as_bytes()))
}

/// First file number of the range for base objects whose host number cannot be shown.
pub const HASHED_IDS: u64 = 1 << 51;

/// First file number of the range for objects created in the delta; host numbers never reach it.
pub const DELTA_IDS: u64 = 1 << 52;

/// The file number that the export shows for the host object (`dev`, `ino`).
///
/// Host numbers are shown unchanged, except if they are 0 or 1 (1 is the export's root), too large,
/// or on another filesystem than the base's root (`root_dev`). Those are hashed into
/// [`HASHED_IDS`]`..`[`DELTA_IDS`]: among a million of them, the probability of a collision is 1 in
/// 4,000.
pub fn hash_fileid(root_dev: u64, dev: u64, ino: u64) -> FileId {
    use std::hash::Hasher;
    if dev == root_dev && (2..HASHED_IDS).contains(&ino) {
        return FileId(ino);
    }
    let mut hasher = siphasher::sip::SipHasher24::new_with_keys(dev, 0);
    hasher.write_u64(ino);
    FileId(HASHED_IDS | (hasher.finish() & (HASHED_IDS - 1)))
}
