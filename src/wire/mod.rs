//! Bytes on the wire ↔ plain data: XDR, and the protocols that are written in it.
//!
//! Everything here is a pure function of its input: no I/O, no async, no policy, and no
//! knowledge of any other module of the crate.
//! Nothing here allocates what a length field merely claims.

pub mod mount3;
pub mod nfs3;
pub mod nlm4;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod xdr;
