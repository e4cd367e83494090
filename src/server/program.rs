//! The interface between the server and the RPC programs that it serves.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;

use bytes::Bytes;

use super::call_names::CallNames;
use super::limits::{OWN_REPLY_BYTES, SMALL_REPLY_BYTES};
use crate::nfs::{CallError, Handles, MountProgram, Nfs};
use crate::vfs::{Caller, Flavor, Vfs};
use crate::wire::mount3;
use crate::wire::nfs3::{self, MAX_TARGET_BYTES, MAX_TRANSFER_BYTES, Procedure};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::Encoder;

/// A call in progress; resolves to the encoded results.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<Encoder, CallError>> + Send + 'a>>;

/// One version of an RPC program.
pub trait RpcProgram: Send + Sync + 'static {
    /// Program number.
    fn number(&self) -> u32;

    /// Program version.
    fn version(&self) -> u32;

    /// How its calls are named in figures.
    fn names(&self) -> CallNames {
        CallNames::OTHER
    }

    /// Identifies the tenant of a call, such as its export; the number has no meaning to the
    /// server. `None` if the arguments do not identify it. A client must not be able to choose the
    /// number.
    fn tenant(&self, _procedure: u32, _args: &Bytes) -> Option<NonZeroU64> {
        None
    }

    /// Executes `procedure` with the encoded `args`; returns the encoded results.
    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a>;

    /// Whether a retransmitted call must get the cached reply instead of a second execution: true
    /// for non-idempotent procedures.
    fn is_non_idempotent(&self, _procedure: u32) -> bool {
        false
    }

    /// Whether the credentials of a call are too weak (`AUTH_TOOWEAK`, RFC 5531 §9).
    fn is_too_weak(&self, _caller: &Caller, _procedure: u32, _args: &Bytes) -> bool {
        false
    }

    /// Upper bound of the reply's memory in bytes. Replies of up to [`SMALL_REPLY_BYTES`] need no
    /// permit.
    fn reply_bytes(&self, _procedure: u32, _args: &Bytes) -> usize {
        SMALL_REPLY_BYTES
    }

    /// Whether a reply may have less data than requested, because the client requests the rest.
    fn may_be_short(&self, _procedure: u32) -> bool {
        false
    }

    /// Reduces the requested count in `args` so that [`RpcProgram::reply_bytes`] is at most
    /// `bytes`. Called only for procedures that [may be short](RpcProgram::may_be_short).
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

    fn names(&self) -> CallNames {
        CallNames::NFS
    }

    fn tenant(&self, procedure: u32, args: &Bytes) -> Option<NonZeroU64> {
        if procedure == PROC_NULL { None } else { self.export_of(args) }
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.call(caller, procedure, args))
    }

    fn is_non_idempotent(&self, procedure: u32) -> bool {
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

/// Whether the arguments end with the requested byte count. A reply with less is no end of file
/// (RFC 1813 §3.3.6) or of directory.
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

    fn names(&self) -> CallNames {
        CallNames::MOUNT
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.call(caller, procedure, args))
    }

    fn reply_bytes(&self, procedure: u32, _args: &Bytes) -> usize {
        match mount3::MountProcedure::from_number(procedure) {
            Some(mount3::MountProcedure::Dump) => SMALL_REPLY_BYTES + self.dump_bytes(),
            // The size is unknown before the list is encoded; most lists are shorter.
            Some(mount3::MountProcedure::Export) => OWN_REPLY_BYTES,
            _ => SMALL_REPLY_BYTES,
        }
    }
}
