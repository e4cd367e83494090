//! NFS version 3 (RFC 1813) as plain data: the arguments and results of all 22 procedures.
//!
//! [`args`] is decoded and [`results`] is encoded. `nfs` interprets both.

pub mod args;
mod limits;
mod procedure;
pub mod results;
mod status;
mod types;

pub use limits::{
    FHSIZE, MAX_ARGS_BYTES, MAX_STRING_BYTES, MAX_TARGET_BYTES, MAX_TRANSFER_BYTES,
    PREFERRED_DIR_BYTES, TRANSFER_MULTIPLE_BYTES, VERFSIZE,
};
pub use procedure::Procedure;
pub use status::Status;
pub use types::{
    Fattr, FileHandle, FileType, NfsTime, PostOpAttr, Sattr, SetTime3, SpecData, StableHow,
    Verifier, WccAttr3, WccData,
};

/// RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;

/// The version.
pub const VERSION: u32 = 3;
