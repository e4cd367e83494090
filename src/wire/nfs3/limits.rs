//! Limits of the protocol, and the server's own limits on transfers.

/// The longest file handle, in bytes (`NFS3_FHSIZE`).
pub const FHSIZE: usize = 64;

/// The size of a cookie, create or write verifier, in bytes.
pub const VERFSIZE: usize = 8;

/// The longest name or symbolic link target that is decoded, in bytes.
///
/// Far above the filesystem's limit, so that the reply is `NFS3ERR_NAMETOOLONG` and not
/// `GARBAGE_ARGS`. Strings are slices of the record, so the limit costs no memory.
pub const MAX_STRING_BYTES: usize = 256 << 10;

/// The longest symbolic link target that SYMLINK accepts, in bytes (`PATH_MAX` of clients).
pub const MAX_TARGET_BYTES: usize = 4096;

/// The most data of one READ or WRITE, and the largest reply of READDIR and READDIRPLUS, in bytes
/// (`rtmax`, `wtmax`; also the preferred size).
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Transfers should be multiples of this many bytes (`rtmult`, `wtmult`).
pub const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

/// The preferred reply size of READDIR, in bytes (`dtpref`).
pub const PREFERRED_DIR_BYTES: u32 = 64 << 10;

/// The size of the largest valid arguments, in bytes: a WRITE of [`MAX_TRANSFER_BYTES`] (handle,
/// offset, count, stability, data with its length).
///
/// RENAME with two names of [`MAX_STRING_BYTES`] is smaller.
pub const MAX_ARGS_BYTES: usize = 4 + FHSIZE + 8 + 4 + 4 + 4 + MAX_TRANSFER_BYTES as usize;
