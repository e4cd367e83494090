//! What operations return: a result, and the attributes that RFC 1813 gives with it.

use bytes::Bytes;

use super::{Attr, Cookie, FileId, Flavor, FsError, Locator, Name, Stability, Time, WriteVerifier};

/// The result of an operation together with the attributes that RFC 1813 returns for success
/// *and* failure: `C` is `Option<Attr>` (post_op_attr), [`Wcc`], or a pair of these.
#[derive(Debug, Clone)]
pub struct Outcome<T, C> {
    /// What the operation gave.
    pub result: Result<T, FsError>,
    /// Attributes of the objects named by the arguments, as far as they are known.
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
    /// A failure of which no attributes are known.
    fn from(error: FsError) -> Self {
        Self::err(error, C::default())
    }
}

/// An object's size and times before a change (`wcc_attr`, RFC 1813 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WccAttr {
    /// Bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
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
    /// After the change; after a failure equal to before.
    pub after: Option<Attr>,
}

impl Wcc {
    /// What a failed operation returns: nothing changed.
    pub fn unchanged(attr: Option<Attr>) -> Self {
        Self { before: attr.as_ref().map(WccAttr::from), after: attr }
    }
}

/// What MNT gives out.
#[derive(Debug, Clone)]
pub struct ExportRoot<O = Locator> {
    /// The root directory.
    pub object: O,
    /// The credentials that are taken, the best first.
    pub flavors: Vec<Flavor>,
}

/// What LOOKUP found.
#[derive(Debug, Clone)]
pub struct LookedUp<O = Locator> {
    /// The object.
    pub object: O,
    /// Its attributes.
    pub attr: Attr,
}

/// What CREATE, MKDIR, SYMLINK or MKNOD made.
#[derive(Debug, Clone)]
pub struct Created<O = Locator> {
    /// The new object.
    pub object: O,
    /// Its attributes.
    pub attr: Attr,
}

/// What READ gave.
#[derive(Debug, Clone)]
pub struct ReadData {
    /// At most as many bytes as asked for.
    pub data: Bytes,
    /// Whether the last byte of the file is among them, or the offset lies behind it.
    pub eof: bool,
}

/// What WRITE did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written: all of them.
    pub count: u32,
    /// How stable they are, at least what was asked for.
    pub committed: Stability,
    /// Changes when unsynced data may have been lost.
    pub verifier: WriteVerifier,
}

/// One entry of a listing.
#[derive(Debug, Clone)]
pub struct Entry<O = Locator> {
    /// The name; `.` and `..` are entries too, so these are plain bytes.
    pub name: Bytes,
    /// The object's number.
    pub fileid: FileId,
    /// Where a listing goes on after this entry.
    pub cookie: Cookie,
    /// The object and its attributes, where they were asked for and could be had.
    pub object: Option<(O, Attr)>,
}

impl<O> Entry<O> {
    /// Builds an entry from a checked name.
    pub fn named(name: &Name, fileid: FileId, cookie: Cookie) -> Self {
        Self { name: name.to_bytes(), fileid, cookie, object: None }
    }
}

/// How a page of a listing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirPage {
    /// Entries that were taken.
    pub taken: usize,
    /// Whether the last entry of the directory was taken.
    pub eof: bool,
}

/// The answer of FSSTAT; bytes and objects of the disk that holds the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStat {
    /// Size, in bytes.
    pub total_bytes: u64,
    /// Free, in bytes.
    pub free_bytes: u64,
    /// Free to an unprivileged user, in bytes.
    pub available_bytes: u64,
    /// Objects that fit.
    pub total_files: u64,
    /// Objects that still fit.
    pub free_files: u64,
    /// The same for an unprivileged user.
    pub available_files: u64,
}

/// The filesystem's part of the answer of FSINFO; transfer sizes are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The granularity of times.
    pub time_delta: Time,
}

/// The answer of PATHCONF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathConf {
    /// Hard links of one object.
    pub max_links: u32,
    /// Bytes of a name.
    pub max_name_bytes: u32,
}
