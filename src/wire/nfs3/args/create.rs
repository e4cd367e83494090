//! Arguments of the procedures that create an object (RFC 1813 §3.3.8 to §3.3.11).

use bytes::Bytes;

use super::DirOpArgs;
use crate::wire::nfs3::limits::MAX_STRING_BYTES;
use crate::wire::nfs3::types::{FileType, Sattr, SpecData, Verifier};
use crate::wire::xdr::{Decode, Decoder, Result, XdrError};

/// How CREATE treats an existing file (`createhow3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow3 {
    /// Uses the existing file.
    Unchecked(Sattr),
    /// Fails.
    Guarded(Sattr),
    /// Succeeds only if the same verifier created the file.
    Exclusive(Verifier),
}

impl Decode for CreateHow3 {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(match from.u32()? {
            0 => Self::Unchecked(Sattr::decode(from)?),
            1 => Self::Guarded(Sattr::decode(from)?),
            2 => Self::Exclusive(from.fixed()?),
            _ => return Err(XdrError::BadValue),
        })
    }
}

/// CREATE (`CREATE3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateArgs {
    /// The directory and the new name.
    pub place: DirOpArgs,
    /// How to treat an existing file.
    pub how: CreateHow3,
}

impl Decode for CreateArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { place: DirOpArgs::decode(from)?, how: CreateHow3::decode(from)? })
    }
}

/// MKDIR (`MKDIR3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MkdirArgs {
    /// The directory and the new name.
    pub place: DirOpArgs,
    /// The initial attributes.
    pub attributes: Sattr,
}

impl Decode for MkdirArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { place: DirOpArgs::decode(from)?, attributes: Sattr::decode(from)? })
    }
}

/// SYMLINK (`SYMLINK3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymlinkArgs {
    /// The directory and the new name.
    pub place: DirOpArgs,
    /// The initial attributes.
    pub attributes: Sattr,
    /// The target; may be empty, or longer than any filesystem accepts.
    pub target: Bytes,
}

impl Decode for SymlinkArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            place: DirOpArgs::decode(from)?,
            attributes: Sattr::decode(from)?,
            target: from.opaque(MAX_STRING_BYTES)?,
        })
    }
}

/// The object that MKNOD creates (`mknoddata3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MknodData {
    /// A character device.
    Character(Sattr, SpecData),
    /// A block device.
    Block(Sattr, SpecData),
    /// A socket.
    Socket(Sattr),
    /// A named pipe.
    Fifo(Sattr),
    /// A type that other procedures create; no data follows.
    Other(FileType),
}

impl Decode for MknodData {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(match FileType::decode(from)? {
            FileType::Character => Self::Character(Sattr::decode(from)?, SpecData::decode(from)?),
            FileType::Block => Self::Block(Sattr::decode(from)?, SpecData::decode(from)?),
            FileType::Socket => Self::Socket(Sattr::decode(from)?),
            FileType::Fifo => Self::Fifo(Sattr::decode(from)?),
            other @ (FileType::Regular | FileType::Directory | FileType::Symlink) => {
                Self::Other(other)
            }
        })
    }
}

/// MKNOD (`MKNOD3args`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MknodArgs {
    /// The directory and the new name.
    pub place: DirOpArgs,
    /// The object to create.
    pub what: MknodData,
}

impl Decode for MknodArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { place: DirOpArgs::decode(from)?, what: MknodData::decode(from)? })
    }
}
