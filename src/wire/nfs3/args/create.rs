//! Arguments of the procedures that make something new (RFC 1813 §3.3.8 to §3.3.11).

use bytes::Bytes;

use super::DirOpArgs;
use crate::wire::nfs3::limits::MAX_STRING_BYTES;
use crate::wire::nfs3::types::{FileType, Sattr, SpecData, Verifier};
use crate::wire::xdr::{Decode, Decoder, Result, XdrError};

/// How CREATE treats an existing file (`createhow3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow3 {
    /// Takes it.
    Unchecked(Sattr),
    /// Fails.
    Guarded(Sattr),
    /// Takes it if the same verifier made it.
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
    /// Where.
    pub place: DirOpArgs,
    /// How.
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
    /// Where.
    pub place: DirOpArgs,
    /// The attributes to begin with.
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
    /// Where.
    pub place: DirOpArgs,
    /// The attributes to begin with.
    pub attributes: Sattr,
    /// What the link says; may be empty or longer than any filesystem takes.
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

/// What MKNOD makes (`mknoddata3`).
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
    /// A type that other procedures make: no data follows.
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
    /// Where.
    pub place: DirOpArgs,
    /// What.
    pub what: MknodData,
}

impl Decode for MknodArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { place: DirOpArgs::decode(from)?, what: MknodData::decode(from)? })
    }
}
