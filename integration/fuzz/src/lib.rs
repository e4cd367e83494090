//! What the fuzz targets check: one function for each, which panics where a promise is broken.
//!
//! - [`record`], [`rpc`], [`xdr`], [`args`]: the protocol's layers alone, without a server
//! - [`server`]: a whole server in this process, with calls that make sense and calls that do not

pub mod args;
mod choices;
pub mod record;
pub mod rpc;
pub mod seeds;
pub mod server;
pub mod xdr;
