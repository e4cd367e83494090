//! Results of operations, with the attributes that RFC 1813 returns with them.

use bytes::Bytes;

use super::{Attr, Cookie, FileId, Flavor, FsError, Locator, Name, Stability, Time, WriteVerifier};

/// The result of an operation together with the attributes that RFC 1813 returns for success
/// *and* failure: `C` is `Option<Attr>` (post_op_attr), [`Wcc`], or a pair of these.
#[derive(Debug, Clone)]
pub struct Outcome<T, C> {
    /// The value, or the error.
    pub result: Result<T, FsError>,
    /// Attributes of the objects named by the arguments, as far as known.
    pub context: C,
}

impl<T, C> Outcome<T, C> {
    /// A success.
    pub fn ok(value: T, context: C) -> Self {
        Self { result: Ok(value), context }
    }

    /// A failure.
    pub fn err(error: FsError, context: C) -> Self {
        Self { result: Err(error), context }
    }
}

impl<T, C: Default> From<FsError> for Outcome<T, C> {
    /// A failure without known attributes.
    fn from(error: FsError) -> Self {
        Self::err(error, C::default())
    }
}

/// An object's size and times before a change (`wcc_attr`, RFC 1813 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WccAttr {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
}

impl From<&Attr> for WccAttr {
    fn from(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// Attributes around a change (`wcc_data`, RFC 1813 §2.6), taken in the change's transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before the change.
    pub before: Option<WccAttr>,
    /// After the change; after a failure equal to the attributes before.
    pub after: Option<Attr>,
}

impl Wcc {
    /// The wcc data of a failed operation.
    pub fn unchanged(attr: Option<Attr>) -> Self {
        Self { before: attr.as_ref().map(WccAttr::from), after: attr }
    }
}

/// The result of MNT.
#[derive(Debug, Clone)]
pub struct ExportRoot<O = Locator> {
    /// The root directory.
    pub object: O,
    /// The accepted credentials, preferred ones first.
    pub flavors: Vec<Flavor>,
}

/// The result of LOOKUP.
#[derive(Debug, Clone)]
pub struct LookedUp<O = Locator> {
    /// The object.
    pub object: O,
    /// Its attributes.
    pub attr: Attr,
}

/// The result of CREATE, MKDIR, SYMLINK or MKNOD.
#[derive(Debug, Clone)]
pub struct Created<O = Locator> {
    /// The new object.
    pub object: O,
    /// Its attributes.
    pub attr: Attr,
}

/// The result of READ.
#[derive(Debug, Clone)]
pub struct ReadData {
    /// The data, at most as many bytes as requested.
    pub data: Bytes,
    /// Whether the data reaches the end of the file, or the offset is past it.
    pub eof: bool,
}

/// The result of WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written: all of them.
    pub count: u32,
    /// Stability of the data, at least as requested.
    pub committed: Stability,
    /// Changes when unsynced data may have been lost.
    pub verifier: WriteVerifier,
}

/// One entry of a listing.
#[derive(Debug, Clone)]
pub struct Entry<O = Locator> {
    /// The name; includes `.` and `..`, so the type is not [`Name`].
    pub name: Bytes,
    /// The object's number.
    pub fileid: FileId,
    /// The cookie with which the listing continues after this entry.
    pub cookie: Cookie,
    /// The object and its attributes, if requested and available.
    pub object: Option<(O, Attr)>,
}

impl<O> Entry<O> {
    /// Builds an entry from a checked name.
    pub fn named(name: &Name, fileid: FileId, cookie: Cookie) -> Self {
        Self { name: name.to_bytes(), fileid, cookie, object: None }
    }
}

/// The end of a page of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirPage {
    /// Number of entries accepted.
    pub taken: usize,
    /// Whether the page includes the directory's last entry.
    pub eof: bool,
}

/// The result of FSSTAT: the session's disk, or the tightest quota if that leaves less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStat {
    /// Size, in bytes.
    pub total_bytes: u64,
    /// Free, in bytes.
    pub free_bytes: u64,
    /// Free to an unprivileged user, in bytes.
    pub available_bytes: u64,
    /// Total number of objects.
    pub total_files: u64,
    /// Number of objects that can still be created.
    pub free_files: u64,
    /// Number of objects that an unprivileged user can still create.
    pub available_files: u64,
}

/// The filesystem's part of FSINFO; the protocol layer adds transfer sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The resolution of times.
    pub time_delta: Time,
}

/// The result of PATHCONF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathConf {
    /// Upper bound of hard links to one object.
    pub max_links: u32,
    /// Upper bound of a name's bytes.
    pub max_name_bytes: u32,
}
