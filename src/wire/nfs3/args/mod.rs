//! Arguments of the procedures (RFC 1813 §3.3).
//!
//! GETATTR, READLINK, FSSTAT, FSINFO and PATHCONF take a [`FileHandle`] alone;
//! LOOKUP, REMOVE and RMDIR a [`DirOpArgs`].

mod create;

use bytes::Bytes;

use super::limits::{MAX_STRING_BYTES, MAX_TRANSFER_BYTES};
use super::types::{FileHandle, NfsTime, Sattr, StableHow, Verifier};
use crate::wire::xdr::{Decode, Decoder, Result};

pub use create::{CreateArgs, CreateHow3, MkdirArgs, MknodArgs, MknodData, SymlinkArgs};

/// A name in a directory (`diropargs3`).
///
/// The name may contain any bytes, and may be longer than any filesystem accepts
/// ([`MAX_STRING_BYTES`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirOpArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The name.
    pub name: Bytes,
}

impl Decode for DirOpArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { dir: FileHandle::decode(from)?, name: from.opaque(MAX_STRING_BYTES)? })
    }
}

/// SETATTR (`SETATTR3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetattrArgs {
    /// The object.
    pub object: FileHandle,
    /// The attributes to set.
    pub attributes: Sattr,
    /// The ctime that the object must have (`sattrguard3`).
    pub guard: Option<NfsTime>,
}

impl Decode for SetattrArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            object: FileHandle::decode(from)?,
            attributes: Sattr::decode(from)?,
            guard: Option::decode(from)?,
        })
    }
}

/// ACCESS (`ACCESS3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessArgs {
    /// The object.
    pub object: FileHandle,
    /// The bits to check.
    pub access: u32,
}

impl Decode for AccessArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { object: FileHandle::decode(from)?, access: from.u32()? })
    }
}

/// READ (`READ3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub count: u32,
}

impl Decode for ReadArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { file: FileHandle::decode(from)?, offset: from.u64()?, count: from.u32()? })
    }
}

/// WRITE (`WRITE3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; the handler compares it with the data.
    pub count: u32,
    /// Required stability.
    pub stable: StableHow,
    /// The data, as a slice of the record.
    pub data: Bytes,
}

impl Decode for WriteArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            file: FileHandle::decode(from)?,
            offset: from.u64()?,
            count: from.u32()?,
            stable: StableHow::decode(from)?,
            data: from.opaque(MAX_TRANSFER_BYTES as usize)?,
        })
    }
}

/// RENAME (`RENAME3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenameArgs {
    /// The old name.
    pub from: DirOpArgs,
    /// The new name.
    pub to: DirOpArgs,
}

impl Decode for RenameArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { from: DirOpArgs::decode(from)?, to: DirOpArgs::decode(from)? })
    }
}

/// LINK (`LINK3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkArgs {
    /// The object.
    pub file: FileHandle,
    /// The new name.
    pub link: DirOpArgs,
}

impl Decode for LinkArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { file: FileHandle::decode(from)?, link: DirOpArgs::decode(from)? })
    }
}

/// READDIR (`READDIR3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry received; 0 at the beginning.
    pub cookie: u64,
    /// The verifier received with the cookie.
    pub cookie_verifier: Verifier,
    /// Upper bound of the `READDIR3resok`, in bytes.
    pub count: u32,
}

impl Decode for ReaddirArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            dir: FileHandle::decode(from)?,
            cookie: from.u64()?,
            cookie_verifier: from.fixed()?,
            count: from.u32()?,
        })
    }
}

/// READDIRPLUS (`READDIRPLUS3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaddirplusArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry received; 0 at the beginning.
    pub cookie: u64,
    /// The verifier received with the cookie.
    pub cookie_verifier: Verifier,
    /// Upper bound of the fileids, names and cookies, in bytes.
    pub dircount: u32,
    /// Upper bound of the `READDIRPLUS3resok`, in bytes.
    pub maxcount: u32,
}

impl Decode for ReaddirplusArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            dir: FileHandle::decode(from)?,
            cookie: from.u64()?,
            cookie_verifier: from.fixed()?,
            dircount: from.u32()?,
            maxcount: from.u32()?,
        })
    }
}

/// COMMIT (`COMMIT3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; 0 for all.
    pub count: u32,
}

impl Decode for CommitArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { file: FileHandle::decode(from)?, offset: from.u64()?, count: from.u32()? })
    }
}
