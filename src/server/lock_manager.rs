//! Serves the lock manager, and lets a LOCK wait for a conflicting lock for a limited time.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::call_names::CallNames;
use super::limits::{LOCK_WAIT, SMALL_REPLY_BYTES};
use super::program::{CallFuture, RpcProgram};
use crate::nfs::lock::{LockAnswer, LockWait};
use crate::nfs::{CallError, HandleCodec, Handles, Nlm};
use crate::vfs::{Caller, Vfs};
use crate::wire::nlm4::{self, MAX_NETOBJ_BYTES, NlmProcedure};
use crate::wire::xdr::Encoder;

/// The network lock manager (NLM version 4) as an RPC program.
pub struct LockManager<V, H = HandleCodec> {
    nlm: Nlm<V, H>,
    /// Notified after each call that released a lock.
    changed: Notify,
    /// [`Nlm::changes`] at the last notification.
    told: AtomicU64,
}

impl<V: Vfs, H: Handles<V::Object>> LockManager<V, H> {
    /// Serves `nlm`.
    pub fn new(nlm: Nlm<V, H>) -> Self {
        Self { nlm, changed: Notify::new(), told: AtomicU64::new(0) }
    }

    async fn answer(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<Encoder, CallError> {
        let answer = self.nlm.call(caller, procedure, args).await?;
        // A call that changes nothing must not wake all waiters.
        let changes = self.nlm.changes();
        if self.told.swap(changes, Ordering::Relaxed) != changes {
            self.changed.notify_waiters();
        }
        Ok(match answer {
            LockAnswer::Reply(reply) => reply,
            LockAnswer::Wait(waiting) => self.wait(waiting).await,
        })
    }

    async fn wait(&self, waiting: LockWait) -> Encoder {
        let granted = async {
            loop {
                // Created before trying, so that a release in between is not missed.
                let changed = self.changed.notified();
                if let Some(reply) = waiting.retry() {
                    return reply;
                }
                changed.await;
            }
        };
        match timeout(LOCK_WAIT, granted).await {
            Ok(reply) => reply,
            Err(_elapsed) => waiting.give_up(),
        }
    }
}

impl<V: Vfs, H: Handles<V::Object>> RpcProgram for LockManager<V, H> {
    fn number(&self) -> u32 {
        nlm4::PROGRAM
    }

    fn version(&self) -> u32 {
        nlm4::VERSION
    }

    fn names(&self) -> CallNames {
        CallNames::NLM
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.answer(caller, procedure, args))
    }

    fn is_non_idempotent(&self, procedure: u32) -> bool {
        use NlmProcedure as P;
        matches!(
            NlmProcedure::from_number(procedure),
            Some(P::Lock | P::NmLock | P::Cancel | P::Unlock | P::FreeAll)
        )
    }

    fn reply_bytes(&self, _procedure: u32, _args: &Bytes) -> usize {
        // A cookie, and the owner of the conflicting lock.
        SMALL_REPLY_BYTES + 2 * MAX_NETOBJ_BYTES
    }
}
