//! Every limit of the protocol and of our side of it.

/// The longest file handle, in bytes (`NFS3_FHSIZE`).
pub const FHSIZE: usize = 64;

/// The size of a cookie, create or write verifier, in bytes.
pub const VERFSIZE: usize = 8;

/// The longest name or symbolic link target that is decoded, in bytes.
///
/// Far above what the filesystem takes, so that the answer is `NFS3ERR_NAMETOOLONG` and not
/// `GARBAGE_ARGS`; no memory depends on it, because strings are slices of the record.
pub const MAX_STRING_BYTES: usize = 256 << 10;

/// The longest symbolic link target that SYMLINK makes, in bytes (`PATH_MAX` of the clients).
pub const MAX_TARGET_BYTES: usize = 4096;

/// The most data that one READ or WRITE moves, in bytes; the same for the reply of READDIR and
/// READDIRPLUS (`rtmax`, `wtmax`; also what we prefer).
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Transfers should be multiples of this many bytes (`rtmult`, `wtmult`).
pub const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

/// The reply size that READDIR should ask for, in bytes (`dtpref`).
pub const PREFERRED_DIR_BYTES: u32 = 64 << 10;

/// The largest arguments that can be legal, in bytes: those of a WRITE of
/// [`MAX_TRANSFER_BYTES`] (handle, offset, count, stability, data with its length).
///
/// RENAME with two names of [`MAX_STRING_BYTES`] stays below.
pub const MAX_ARGS_BYTES: usize = 4 + FHSIZE + 8 + 4 + 4 + 4 + MAX_TRANSFER_BYTES as usize;
