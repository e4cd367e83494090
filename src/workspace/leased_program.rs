//! Holds calls back while another server may have the session.
//!
//! The Linux client repeats a call 5 seconds after `NFS3ERR_JUKEBOX`. A call without an answer is
//! repeated as soon as the connection ends, as when the session's address moves to another server.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use crate::delta::postgres::{HeldLease, LeaseTime};
use crate::server::{CallFuture, CallNames, RpcProgram};
use crate::vfs::Caller;

/// The procedure that does nothing, of all programs.
const PROC_NULL: u32 = 0;

/// A program whose calls run only while the lease is valid. Calls that wait when the lease is lost
/// are never answered.
pub(super) struct LeasedProgram {
    pub(super) program: Arc<dyn RpcProgram>,
    pub(super) lease: Arc<HeldLease>,
}

impl RpcProgram for LeasedProgram {
    fn number(&self) -> u32 {
        self.program.number()
    }

    fn version(&self) -> u32 {
        self.program.version()
    }

    fn names(&self) -> CallNames {
        self.program.names()
    }

    fn tenant(&self, procedure: u32, args: &Bytes) -> Option<NonZeroU64> {
        self.program.tenant(procedure, args)
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        if procedure == PROC_NULL || self.lease.is_valid(LeaseTime::now()) {
            return self.program.call(caller, procedure, args);
        }
        Box::pin(async move {
            self.lease.until_valid().await;
            self.program.call(caller, procedure, args).await
        })
    }

    fn is_non_idempotent(&self, procedure: u32) -> bool {
        self.program.is_non_idempotent(procedure)
    }

    fn is_too_weak(&self, caller: &Caller, procedure: u32, args: &Bytes) -> bool {
        self.program.is_too_weak(caller, procedure, args)
    }

    fn reply_bytes(&self, procedure: u32, args: &Bytes) -> usize {
        self.program.reply_bytes(procedure, args)
    }

    fn may_be_short(&self, procedure: u32) -> bool {
        self.program.may_be_short(procedure)
    }

    fn shorten(&self, procedure: u32, args: Bytes, bytes: usize) -> Bytes {
        self.program.shorten(procedure, args, bytes)
    }
}
