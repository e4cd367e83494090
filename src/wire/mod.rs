//! XDR, and the protocols that use it, as plain data.
//!
//! All code here is a pure function of its input: no I/O, no async, no policy, and no dependency on
//! other modules of the crate. It never allocates memory for a length that is only claimed.

pub mod mount3;
pub mod nfs3;
pub mod nlm4;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod xdr;
