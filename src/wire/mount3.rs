//! The MOUNT protocol, version 3 (RFC 1813 appendix I), as plain data.

use bytes::Bytes;

use super::nfs3::FileHandle;
use super::xdr::{Decode, Decoder, Encode, Encoder, Result};

/// RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;

/// The MOUNT version for NFSv3.
pub const VERSION: u32 = 3;

/// The longest path that can be mounted, in bytes (`MNTPATHLEN`).
pub const MAX_PATH_BYTES: usize = 1024;

/// The longest path that is decoded, in bytes. The handler refuses a path above [`MAX_PATH_BYTES`]
/// with the protocol's own status.
const MAX_DECODED_PATH_BYTES: usize = super::nfs3::MAX_STRING_BYTES;

/// The procedures of MOUNT version 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountProcedure {
    /// Does nothing.
    Null,
    /// Returns the file handle of a path.
    Mnt,
    /// Lists remembered mounts.
    Dump,
    /// Forgets a mount.
    Umnt,
    /// Forgets all mounts of the client.
    UmntAll,
    /// Lists exports.
    Export,
}

impl MountProcedure {
    /// Decodes a procedure number; `None` if it does not exist.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Mnt,
            2 => Self::Dump,
            3 => Self::Umnt,
            4 => Self::UmntAll,
            5 => Self::Export,
            _ => return None,
        })
    }
}

/// Why MNT failed (`mountstat3`, without success).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MountStatus {
    /// Not owner.
    Perm = 1,
    /// No such file or directory.
    NoEnt = 2,
    /// Input/output error.
    Io = 5,
    /// Permission denied.
    Acces = 13,
    /// Not a directory.
    NotDir = 20,
    /// Invalid argument.
    Inval = 22,
    /// Path too long.
    NameTooLong = 63,
    /// Operation not supported.
    NotSupp = 10_004,
    /// A failure on the server.
    ServerFault = 10_006,
}

/// A path as the client sent it (`dirpath`): the argument of MNT and UMNT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirPath(pub Bytes);

impl Decode for DirPath {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self(from.opaque(MAX_DECODED_PATH_BYTES)?))
    }
}

/// The result of MNT (`mountres3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountReply {
    /// The root of the export.
    Ok {
        /// Its handle.
        handle: FileHandle,
        /// Accepted RPC authentication flavors, preferred ones first.
        flavors: Vec<u32>,
    },
    /// The export cannot be mounted.
    Fail(MountStatus),
}

impl Encode for MountReply {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Ok { handle, flavors } => {
                to.put_u32(0);
                handle.encode(to);
                to.put_u32(u32::try_from(flavors.len()).unwrap_or(u32::MAX));
                for flavor in flavors {
                    to.put_u32(*flavor);
                }
            }
            Self::Fail(status) => to.put_u32(*status as u32),
        }
    }
}

/// An element of the list that DUMP returns (`mountbody`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The client.
    pub host: Bytes,
    /// The mounted path.
    pub path: Bytes,
}

/// The result of DUMP (`mountlist`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountList(pub Vec<MountEntry>);

impl Encode for MountList {
    fn encode(&self, to: &mut Encoder) {
        for entry in &self.0 {
            to.put_bool(true);
            to.put_opaque(&entry.host);
            to.put_opaque(&entry.path);
        }
        to.put_bool(false);
    }
}

/// The result of EXPORT (`exports`): paths with empty group lists, so any client may try to mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportList(pub Vec<Bytes>);

impl Encode for ExportList {
    fn encode(&self, to: &mut Encoder) {
        for path in &self.0 {
            to.put_bool(true);
            to.put_opaque(path);
            // An empty list of groups.
            to.put_bool(false);
        }
        to.put_bool(false);
    }
}
