//! What the server asks of a program that it serves.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;

use bytes::Bytes;

use super::limits::{OWN_REPLY_BYTES, SMALL_REPLY_BYTES};
use crate::nfs::{CallError, Handles, MountProgram, Nfs};
use crate::vfs::{Caller, Flavor, Vfs};
use crate::wire::mount3;
use crate::wire::nfs3::{self, MAX_TARGET_BYTES, MAX_TRANSFER_BYTES, Procedure};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::Encoder;

/// A call that is being worked on.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<Encoder, CallError>> + Send + 'a>>;

/// One version of an RPC program.
pub trait RpcProgram: Send + Sync + 'static {
    /// Program number.
    fn number(&self) -> u32;

    /// Program version.
    fn version(&self) -> u32;

    /// Whom a call is for: a number that means nothing here, such as that of the export that it is
    /// about; `None` where the arguments do not show it. It must not be for the client to choose.
    fn tenant(&self, _procedure: u32, _args: &Bytes) -> Option<NonZeroU64> {
        None
    }

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

    /// Whether a reply may bring less than was asked for, because the client asks for the rest.
    fn may_be_short(&self, _procedure: u32) -> bool {
        false
    }

    /// The arguments that ask for so much less that [`RpcProgram::reply_bytes`] is `bytes` at most;
    /// only of procedures that [may be short](RpcProgram::may_be_short).
    fn shorten(&self, _procedure: u32, args: Bytes, _bytes: usize) -> Bytes {
        args
    }
}

impl<V: Vfs, H: Handles<V::Object>> RpcProgram for Nfs<V, H> {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn version(&self) -> u32 {
        nfs3::VERSION
    }

    fn tenant(&self, procedure: u32, args: &Bytes) -> Option<NonZeroU64> {
        if procedure == PROC_NULL { None } else { self.export_of(args) }
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
            Some(procedure) if ends_with_count(procedure) => {
                args.last_chunk().map_or(0, |count| u32::from_be_bytes(*count))
            }
            Some(Procedure::Readlink) => MAX_TARGET_BYTES as u32,
            _ => 0,
        };
        SMALL_REPLY_BYTES + data.min(MAX_TRANSFER_BYTES) as usize
    }

    fn may_be_short(&self, procedure: u32) -> bool {
        Procedure::from_number(procedure).is_some_and(ends_with_count)
    }

    fn shorten(&self, _procedure: u32, args: Bytes, bytes: usize) -> Bytes {
        let count = bytes.saturating_sub(SMALL_REPLY_BYTES).min(MAX_TRANSFER_BYTES as usize) as u32;
        match args.split_last_chunk() {
            Some((rest, asked)) if u32::from_be_bytes(*asked) > count => {
                [rest, &count.to_be_bytes()].concat().into()
            }
            _ => args,
        }
    }
}

/// Whether the arguments end with the bytes that are asked for. The reply may bring less, without
/// being the end: of a file's content (RFC 1813 §3.3.6), or of a directory's entries.
fn ends_with_count(procedure: Procedure) -> bool {
    matches!(procedure, Procedure::Read | Procedure::Readdir | Procedure::Readdirplus)
}

impl<V: Vfs, H: Handles<V::Object>> RpcProgram for MountProgram<V, H> {
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
        match mount3::MountProcedure::from_number(procedure) {
            Some(mount3::MountProcedure::Dump) => SMALL_REPLY_BYTES + self.dump_bytes(),
            // Nobody knows before it is made; most lists are shorter.
            Some(mount3::MountProcedure::Export) => OWN_REPLY_BYTES,
            _ => SMALL_REPLY_BYTES,
        }
    }
}
