//! What the server asks of a program that it serves.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::limits::SMALL_REPLY_BYTES;
use crate::vfs::Caller;
use crate::wire::xdr::Encoder;

/// Why a procedure was not carried out at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The arguments cannot be decoded.
    GarbageArgs,
    /// The program has no such procedure.
    ProcedureUnavailable,
}

/// A call that is being worked on.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<Encoder, CallError>> + Send + 'a>>;

/// One version of an RPC program.
pub trait Program: Send + Sync + 'static {
    /// Program number.
    fn number(&self) -> u32;

    /// Program version.
    fn version(&self) -> u32;

    /// Carries out `procedure` with the encoded `args`; returns the encoded results.
    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a>;

    /// Whether a retransmitted call must get the first one's reply instead of being carried out
    /// again: true for procedures that change something.
    fn is_replayed(&self, _procedure: u32) -> bool {
        false
    }

    /// The bytes of memory that the reply may come to, as far as the server has to wait for it.
    fn reply_bytes(&self, _procedure: u32, _args: &Bytes) -> usize {
        SMALL_REPLY_BYTES
    }
}
