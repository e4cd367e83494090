//! What the server asks of a program that it serves.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::limits::SMALL_REPLY_BYTES;
use crate::nfs::{CallError, Handles, Mount, Nfs};
use crate::vfs::{Caller, Flavor, Vfs};
use crate::wire::mount3;
use crate::wire::nfs3::{self, MAX_TARGET_BYTES, MAX_TRANSFER_BYTES, Procedure};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::Encoder;

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

    /// Whether a call needs better credentials than it has (`AUTH_TOOWEAK`, RFC 5531 §9).
    fn is_too_weak(&self, _caller: &Caller, _procedure: u32, _args: &Bytes) -> bool {
        false
    }

    /// The bytes of memory that the reply may come to, as far as the server has to wait for it.
    fn reply_bytes(&self, _procedure: u32, _args: &Bytes) -> usize {
        SMALL_REPLY_BYTES
    }
}

impl<V: Vfs, H: Handles<V::Object>> Program for Nfs<V, H> {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn version(&self) -> u32 {
        nfs3::VERSION
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.call(caller, procedure, args))
    }

    fn is_replayed(&self, procedure: u32) -> bool {
        Procedure::from_number(procedure).is_some_and(Procedure::needs_replay)
    }

    fn is_too_weak(&self, caller: &Caller, procedure: u32, args: &Bytes) -> bool {
        caller.flavor == Flavor::None && procedure != PROC_NULL && self.refuses_anonymous(args)
    }

    fn reply_bytes(&self, procedure: u32, args: &Bytes) -> usize {
        let data = match Procedure::from_number(procedure) {
            // The arguments of all three end with the count of bytes that is asked for.
            Some(Procedure::Read | Procedure::Readdir | Procedure::Readdirplus) => {
                args.last_chunk().map_or(0, |count| u32::from_be_bytes(*count))
            }
            Some(Procedure::Readlink) => MAX_TARGET_BYTES as u32,
            _ => 0,
        };
        SMALL_REPLY_BYTES + data.min(MAX_TRANSFER_BYTES) as usize
    }
}

impl<V: Vfs, H: Handles<V::Object>> Program for Mount<V, H> {
    fn number(&self) -> u32 {
        mount3::PROGRAM
    }

    fn version(&self) -> u32 {
        mount3::VERSION
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.call(caller, procedure, args))
    }

    fn reply_bytes(&self, procedure: u32, _args: &Bytes) -> usize {
        let is_dump = mount3::Procedure::from_number(procedure) == Some(mount3::Procedure::Dump);
        SMALL_REPLY_BYTES + if is_dump { self.dump_bytes() } else { 0 }
    }
}
