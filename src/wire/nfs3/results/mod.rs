//! Results of the procedures (RFC 1813 §3.3).
//!
//! Each is a [`Reply`] with one type for success and one for failure:
//!
//! | Procedure | Success | Failure |
//! |---|---|---|
//! | GETATTR | [`Fattr`](super::Fattr) | nothing |
//! | SETATTR, REMOVE, RMDIR | [`WccData`] | [`WccData`] |
//! | LOOKUP | [`LookupOk`] | [`PostOpAttr`] |
//! | ACCESS, READLINK, READ | [`AccessOk`], [`ReadlinkOk`], [`ReadOk`] | [`PostOpAttr`] |
//! | WRITE, COMMIT | [`WriteOk`], [`CommitOk`] | [`WccData`] |
//! | CREATE, MKDIR, SYMLINK, MKNOD | [`CreateOk`] | [`WccData`] |
//! | RENAME | [`RenameWcc`] | [`RenameWcc`] |
//! | LINK | [`LinkAttrs`] | [`LinkAttrs`] |
//! | READDIR, READDIRPLUS | [`DirList`] | [`PostOpAttr`] |
//! | FSSTAT, FSINFO, PATHCONF | [`FsstatOk`], [`FsinfoOk`], [`PathconfOk`] | [`PostOpAttr`] |

mod fs;
mod list;

use bytes::Bytes;

use super::status::Status;
use super::types::{FileHandle, PostOpAttr, StableHow, Verifier, WccData};
use crate::wire::xdr::{Encode, Encoder};

pub use fs::{FsinfoOk, FsstatOk, PathconfOk, properties};
pub use list::{DirEntry, DirEntryPlus, DirList, EncodedEntries};

/// A procedure's result: a union discriminated by its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<T, F> {
    /// `NFS3_OK` and its data.
    Ok(T),
    /// Another status and its data.
    Fail(Status, F),
}

impl<T: Encode, F: Encode> Encode for Reply<T, F> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Ok(value) => {
                Status::Ok.encode(to);
                value.encode(to);
            }
            Self::Fail(status, value) => {
                status.encode(to);
                value.encode(to);
            }
        }
    }
}

/// Success of LOOKUP (`LOOKUP3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupOk {
    /// The object found.
    pub object: FileHandle,
    /// Its attributes.
    pub attributes: PostOpAttr,
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
}

impl Encode for LookupOk {
    fn encode(&self, to: &mut Encoder) {
        self.object.encode(to);
        self.attributes.encode(to);
        self.dir_attributes.encode(to);
    }
}

/// Success of ACCESS (`ACCESS3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessOk {
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// The granted bits.
    pub access: u32,
}

impl Encode for AccessOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_u32(self.access);
    }
}

/// Success of READLINK (`READLINK3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadlinkOk {
    /// The link's attributes.
    pub attributes: PostOpAttr,
    /// The target.
    pub target: Bytes,
}

impl Encode for ReadlinkOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_opaque(&self.target);
    }
}

/// Success of READ (`READ3resok`); its `count` is the length of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOk {
    /// The file's attributes.
    pub attributes: PostOpAttr,
    /// Whether the data reaches the end of the file.
    pub eof: bool,
    /// The data; encoded without a copy.
    pub data: Bytes,
}

impl Encode for ReadOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_u32(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        to.put_bool(self.eof);
        to.put_shared(self.data.clone());
    }
}

/// Success of WRITE (`WRITE3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOk {
    /// The file's wcc data.
    pub wcc: WccData,
    /// Number of bytes written.
    pub count: u32,
    /// Actual stability.
    pub committed: StableHow,
    /// Changes when unsynced data may have been lost.
    pub verifier: Verifier,
}

impl Encode for WriteOk {
    fn encode(&self, to: &mut Encoder) {
        self.wcc.encode(to);
        to.put_u32(self.count);
        to.put_u32(self.committed as u32);
        to.put_fixed(&self.verifier);
    }
}

/// Success of COMMIT (`COMMIT3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOk {
    /// The file's wcc data.
    pub wcc: WccData,
    /// Changes when unsynced data may have been lost.
    pub verifier: Verifier,
}

impl Encode for CommitOk {
    fn encode(&self, to: &mut Encoder) {
        self.wcc.encode(to);
        to.put_fixed(&self.verifier);
    }
}

/// Success of CREATE, MKDIR, SYMLINK and MKNOD (`CREATE3resok` and its counterparts).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOk {
    /// The new object (`post_op_fh3`).
    pub object: Option<FileHandle>,
    /// Its attributes.
    pub attributes: PostOpAttr,
    /// The directory's wcc data.
    pub dir_wcc: WccData,
}

impl Encode for CreateOk {
    fn encode(&self, to: &mut Encoder) {
        self.object.encode(to);
        self.attributes.encode(to);
        self.dir_wcc.encode(to);
    }
}

/// Both results of RENAME (`RENAME3resok`, `RENAME3resfail`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenameWcc {
    /// The source directory.
    pub from: WccData,
    /// The target directory.
    pub to: WccData,
}

impl Encode for RenameWcc {
    fn encode(&self, to: &mut Encoder) {
        self.from.encode(to);
        self.to.encode(to);
    }
}

/// Both results of LINK (`LINK3resok`, `LINK3resfail`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkAttrs {
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// Wcc data of the new name's directory.
    pub dir_wcc: WccData,
}

impl Encode for LinkAttrs {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        self.dir_wcc.encode(to);
    }
}
