//! The read-only lower layer.
//!
//! [`Base`] is all that the overlay knows of it: objects by path, their attributes, listings and
//! content. Nothing here can write, and nothing here leaves the base directory.
//!
//! Implementations: [`HostDir`], a directory of this machine; [`Empty`], the base of a plain
//! session; [`Hiding`], another base without what is never served; [`WatchedBase`], another base
//! whose calls are watched for hanging.
//!
//! All methods block. Light operations call them on network threads, unless the base is slow; all
//! others call them on the worker's threads.

mod empty;
mod error;
mod filtered;
mod host_dir;
mod path;
mod turn;
mod watched;

use std::sync::Arc;

use crate::vfs::{Device, FileId, FileKind, Name, Time};

pub use empty::Empty;
pub use error::BaseError;
pub use filtered::Hiding;
pub use host_dir::{Beneath, HostDir, HostDirOptions, shown_mode};
pub use path::BasePath;
pub use turn::{ListingTurn, TurnTaken};
pub use watched::{MAX_STUCK_CALLS, WatchedBase};

/// A read-only tree. Every path is relative to its root; symbolic links are never followed.
pub trait Base: Send + Sync + 'static {
    /// Takes no path to lead where it led a moment ago: the base was just changed, by us.
    fn look_anew(&self);

    /// Whether another machine or another process answers for it, so that any call may hang.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether it has the journal of an `acetate apply`, of this session or of another one. As long
    /// as it does, a directory may be at its old path, at its new one, or in the staging.
    fn has_unfinished_apply(&self) -> Result<bool, BaseError>;

    /// Returns an object's attributes, without following a symbolic link.
    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError>;

    /// Lists a directory, without `.` and `..`, in no particular order. A large one may have to
    /// wait until another is not in memory any more ([`BaseError::Busy`]).
    ///
    /// The entries are a snapshot, and may come from a bounded cache that is checked against the
    /// directory's mtime and ctime. A mount point lists as empty.
    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError>;

    /// Opens the directory `path` for looking at many of its entries.
    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError>;

    /// Reads a symbolic link's target.
    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError>;

    /// Reads up to `buffer.len()` bytes of the regular file `path` at byte `offset`.
    ///
    /// Returns how many bytes were read (fewer only at the end of the file), and the file's
    /// attributes after the read.
    /// `id` names the object that is meant: if the path holds another one by now, the answer is
    /// [`BaseError::Changed`].
    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError>;

    /// Returns the next range of bytes that is not a hole, at or after byte `offset`
    /// (start, end); `None` behind the last one. Without support by the host filesystem the
    /// whole rest of the file is one range.
    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError>;

    /// Returns the first path of the file with number `id` that is `wanted`, by searching the
    /// whole tree.
    ///
    /// Only needed for a base file with several names: when its handle outlived a restart and
    /// none of its names was looked up again, or when the name at hand is removed.
    /// Implementations keep a bounded index of what a search saw, so that the cost is paid once.
    /// `wanted` must not search itself.
    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError>;
}

/// A directory that is being listed with attributes.
pub trait Entries {
    /// Returns the attributes of the entry `name`, which [`Base::list`] has with the number `id`,
    /// as [`Base::stat`] does; or as an implementation has seen them within the last second, if
    /// nobody was told of newer ones since.
    fn stat(&self, name: &Name, id: FileId) -> Result<BaseAttr, BaseError>;
}

/// What `stat` says about a base object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseAttr {
    /// Type.
    pub kind: FileKind,
    /// Permission bits (12 bits). Where the object has an access ACL, without those that would
    /// grant what the ACL denies.
    pub mode: u32,
    /// Names on the host.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes on disk.
    pub used: u64,
    /// Device number of a special file.
    pub rdev: Device,
    /// Host device number of the filesystem that the object is on.
    pub dev: u64,
    /// Host inode number.
    pub ino: u64,
    /// The number that the export shows: the host's where it is fit, else one folded into a
    /// range of its own (see [`fold_fileid`]). The base's root has its host number here too.
    pub fileid: FileId,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

/// A directory's entries at one moment.
#[derive(Debug, Default)]
pub struct Listing {
    /// The entries; names are unique.
    pub entries: Vec<ListedEntry>,
    /// The turn of a large listing that no cache has, as long as it is in memory.
    pub turn: Option<Arc<TurnTaken>>,
}

/// One entry of a [`Listing`].
#[derive(Debug, Clone)]
pub struct ListedEntry {
    /// Name in the directory.
    pub name: Name,
    /// The number that [`Base::stat`] shows for it.
    pub fileid: FileId,
    /// The type, where the host told it with the entry.
    pub kind: Option<FileKind>,
}

/// The directory at the top of a base in which `acetate apply` keeps what it is about to put
/// there. It does not exist for the export.
pub const STAGING: &str = ".acetate-apply";

/// The file in [`STAGING`] that says what is to be done. It is there before the first change of
/// the base, and until the session has the result; it is there as a whole, or not at all.
pub const STAGING_JOURNAL: &str = "journal";

/// The directory at the top of a base for what `acetate apply` took from its place and can put
/// back nowhere. It does not exist for the export.
pub const KEPT: &str = ".acetate-kept";

/// What is acetate's own at the top of a base: [`STAGING`] and [`KEPT`].
pub fn own_paths() -> impl Iterator<Item = BasePath> {
    [STAGING, KEPT].into_iter().filter_map(|name| BasePath::from_bytes(name.as_bytes()))
}

/// First number of the range for base objects whose host number cannot be shown.
pub const FOLDED_IDS: u64 = 1 << 51;

/// First number of the range for objects born in the delta; host numbers never reach it.
pub const DELTA_IDS: u64 = 1 << 52;

/// The number that the export shows for the host object (`dev`, `ino`).
///
/// Host numbers are shown as they are, except where they are 0 or 1 (1 is the export's root),
/// too large, or of another filesystem than the base's root (`root_dev`): these are folded into
/// [`FOLDED_IDS`]`..`[`DELTA_IDS`] by a hash, where two of a million collide with a probability
/// of 1 in 4,000.
pub fn fold_fileid(root_dev: u64, dev: u64, ino: u64) -> FileId {
    use std::hash::Hasher;
    if dev == root_dev && (2..FOLDED_IDS).contains(&ino) {
        return FileId(ino);
    }
    let mut hasher = siphasher::sip::SipHasher24::new_with_keys(dev, 0);
    hasher.write_u64(ino);
    FileId(FOLDED_IDS | (hasher.finish() & (FOLDED_IDS - 1)))
}
