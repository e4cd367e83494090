//! The status codes of NFSv3.

use crate::wire::xdr::{Encode, Encoder};

/// The outcome of a procedure (`nfsstat3`, RFC 1813 §2.6), as far as the server has a use for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// Not owner.
    Perm = 1,
    /// No such file or directory.
    NoEnt = 2,
    /// Input/output error.
    Io = 5,
    /// Permission denied.
    Acces = 13,
    /// The name exists.
    Exist = 17,
    /// Hard link or rename across filesystems.
    Xdev = 18,
    /// Not a directory.
    NotDir = 20,
    /// Is a directory.
    IsDir = 21,
    /// Invalid argument.
    Inval = 22,
    /// File too large.
    Fbig = 27,
    /// No space left.
    NoSpc = 28,
    /// Read-only filesystem.
    Rofs = 30,
    /// Too many hard links.
    Mlink = 31,
    /// Name too long.
    NameTooLong = 63,
    /// Directory not empty.
    NotEmpty = 66,
    /// Quota exceeded.
    Dquot = 69,
    /// The object is gone.
    Stale = 70,
    /// The handle is not valid.
    BadHandle = 10_001,
    /// The guard of SETATTR does not match.
    NotSync = 10_002,
    /// Operation not supported.
    NotSupp = 10_004,
    /// The reply exceeds the size that the client allows.
    TooSmall = 10_005,
    /// A failure on the server.
    ServerFault = 10_006,
    /// The type cannot be created.
    BadType = 10_007,
    /// The client should retry later.
    Jukebox = 10_008,
}

impl Encode for Status {
    fn encode(&self, to: &mut Encoder) {
        to.put_u32(*self as u32);
    }
}
