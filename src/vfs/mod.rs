//! The interface between the protocol and the filesystem.
//!
//! [`Vfs`] has a method per operation of NFSv3 on the filesystem, in the protocol's terms (objects,
//! attributes, wcc data) but without its encoding. `nfs` and `control` call it, `overlay` and
//! `export` implement it, and tests implement it with a script.
//!
//! This module depends on no other module of the crate, and does no I/O.

mod error;
mod guarded;
mod name;
mod outcome;
mod types;

use std::fmt::Debug;
use std::future::Future;
use std::num::NonZeroU64;

use bytes::Bytes;

pub use error::FsError;
pub use guarded::{GuardedFile, PublishPreconditions};
pub use name::{Name, NameError};
pub use outcome::{
    Created, DirPage, Entry, ExportRoot, FsInfo, FsStat, LookedUp, Outcome, PathConf, ReadData,
    Wcc, WccAttr, Written,
};
pub use types::{
    Access, Attr, CallId, Caller, Cookie, CreateHow, CreateVerifier, Device, FileId, FileKind,
    Flavor, Locator, LockKey, NewNode, PathDigest, SetAttr, SetTime, Stability, Time,
    WriteVerifier,
};

/// A filesystem as an NFSv3 server needs it.
///
/// Each method is one transaction: the attributes that it returns before and after the change
/// belong to exactly this change (RFC 1813 §2.6), also on failure. Each method checks the
/// permissions of the given [`Caller`] by the mode bits.
pub trait Vfs: Send + Sync + 'static {
    /// The object that a file handle identifies.
    type Object: Clone + Debug + Send + Sync + 'static;

    /// The root directory of the export with this path (RFC 1813 §5.2.1). [`FsError::NotFound`] if
    /// this caller may mount no such export.
    fn mount(
        &self,
        caller: &Caller,
        path: &[u8],
    ) -> impl Future<Output = Result<ExportRoot<Self::Object>, FsError>> + Send;

    /// The caller's machine no longer uses its mount of an export (RFC 1813 §5.2.3), or of all
    /// (§5.2.4).
    fn unmounted(&self, _caller: &Caller, _path: Option<&[u8]>) {}

    /// The paths of the exports that this caller may list (RFC 1813 §5.2.5).
    fn exports(&self, caller: &Caller) -> Vec<Bytes>;

    /// Whether the object's export accepts calls without credentials (AUTH_NONE).
    fn takes_anonymous(&self, _object: &Self::Object) -> bool {
        true
    }

    /// Identifies the object's export: equal for all objects of an export, different for other
    /// exports. Shared resources are divided among clients by this number.
    fn export_number(&self, _object: &Self::Object) -> NonZeroU64 {
        NonZeroU64::MIN
    }

    /// The key of locks on this object, equal for every export that contains it.
    fn lock_key(&self, object: &Self::Object) -> LockKey;

    /// Returns an object's attributes (RFC 1813 §3.3.1).
    fn getattr(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Result<Attr, FsError>> + Send;

    /// Changes attributes (RFC 1813 §3.3.2). With `guard`, fails with [`FsError::NotSync`] unless
    /// the object's ctime equals it.
    fn setattr(
        &self,
        caller: &Caller,
        object: &Self::Object,
        set: SetAttr,
        guard: Option<Time>,
    ) -> impl Future<Output = Outcome<(), Wcc>> + Send;

    /// Finds `name` in `dir`, including `.` and `..` (RFC 1813 §3.3.3). The context is the
    /// directory's attributes.
    fn lookup(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        name: &[u8],
    ) -> impl Future<Output = Outcome<LookedUp<Self::Object>, Option<Attr>>> + Send;

    /// Returns the subset of `want` that the caller may do (RFC 1813 §3.3.4). The context is the
    /// object's attributes.
    fn access(
        &self,
        caller: &Caller,
        object: &Self::Object,
        want: Access,
    ) -> impl Future<Output = Outcome<Access, Option<Attr>>> + Send;

    /// Reads a symbolic link's target (RFC 1813 §3.3.5).
    fn readlink(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Outcome<Bytes, Option<Attr>>> + Send;

    /// Reads up to `count` bytes at byte `offset` (RFC 1813 §3.3.6).
    fn read(
        &self,
        caller: &Caller,
        object: &Self::Object,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Outcome<ReadData, Option<Attr>>> + Send;

    /// Writes `data` at byte `offset`, at least as stable as requested (RFC 1813 §3.3.7).
    fn write(
        &self,
        caller: &Caller,
        object: &Self::Object,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> impl Future<Output = Outcome<Written, Wcc>> + Send;

    /// Creates a regular file (RFC 1813 §3.3.8). The context is the directory's wcc data.
    fn create(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        name: &[u8],
        how: CreateHow,
    ) -> impl Future<Output = Outcome<Created<Self::Object>, Wcc>> + Send;

    /// Creates a directory, symbolic link or special file
    /// (MKDIR, SYMLINK, MKNOD: RFC 1813 §3.3.9 to §3.3.11).
    fn make_node(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> impl Future<Output = Outcome<Created<Self::Object>, Wcc>> + Send;

    /// Removes anything but a directory (RFC 1813 §3.3.12).
    fn remove(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        name: &[u8],
    ) -> impl Future<Output = Outcome<(), Wcc>> + Send;

    /// Removes an empty directory (RFC 1813 §3.3.13).
    fn rmdir(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        name: &[u8],
    ) -> impl Future<Output = Outcome<(), Wcc>> + Send;

    /// Renames, replacing the target where POSIX allows it (RFC 1813 §3.3.14).
    /// The context is the wcc data of the two directories, source first.
    fn rename(
        &self,
        caller: &Caller,
        from: (&Self::Object, &[u8]),
        to: (&Self::Object, &[u8]),
    ) -> impl Future<Output = Outcome<(), (Wcc, Wcc)>> + Send;

    /// Adds a hard link to `object` (RFC 1813 §3.3.15). The context is the object's attributes and
    /// the directory's wcc data.
    fn link(
        &self,
        caller: &Caller,
        object: &Self::Object,
        dir: &Self::Object,
        name: &[u8],
    ) -> impl Future<Output = Outcome<(), (Option<Attr>, Wcc)>> + Send;

    /// Lists the entries after `cookie` in ascending cookie order (READDIR and READDIRPLUS, RFC
    /// 1813 §3.3.16 and §3.3.17).
    ///
    /// `take` receives each entry in turn and returns whether the entry fits; at `false` the entry
    /// is left out and the page ends. `with_attrs` fills in locator and attributes. The context is
    /// the directory's attributes.
    fn readdir(
        &self,
        caller: &Caller,
        dir: &Self::Object,
        cookie: Cookie,
        with_attrs: bool,
        take: impl FnMut(&Entry<Self::Object>) -> bool + Send + 'static,
    ) -> impl Future<Output = Outcome<DirPage, Option<Attr>>> + Send;

    /// Space and object counts of the session's filesystem (RFC 1813 §3.3.18).
    fn fsstat(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Outcome<FsStat, Option<Attr>>> + Send;

    /// Static limits (RFC 1813 §3.3.19).
    fn fsinfo(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Outcome<FsInfo, Option<Attr>>> + Send;

    /// Limits of names and links (RFC 1813 §3.3.20).
    fn pathconf(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Outcome<PathConf, Option<Attr>>> + Send;

    /// Returns once everything written before has reached stable storage (RFC 1813 §3.3.21).
    fn commit(
        &self,
        caller: &Caller,
        object: &Self::Object,
    ) -> impl Future<Output = Outcome<WriteVerifier, Wcc>> + Send;
}
