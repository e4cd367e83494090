//! The NLM procedures.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use super::range::ByteRange;
use super::table::{LockClient, LockOwner};
use super::waiting::{LockRequest, LockWait, SharedLocks};
use crate::nfs::{CallError, HandleCodec, Handles, decode, encode, to_lock_status};
use crate::vfs::{Caller, LockKey, Vfs};
use crate::wire::nlm4::{
    CancelArgs, FreeAllArgs, Holder, Lock, LockArgs, NlmProcedure, NlmReply, NlmStatus, ShareArgs,
    ShareReply, TestArgs, TestReply, UnlockArgs,
};
use crate::wire::xdr::{Decode, Encoder};

/// The outcome of a call.
#[derive(Debug)]
pub enum LockAnswer {
    /// The encoded reply.
    Reply(Encoder),
    /// Another owner's lock conflicts, and the client wants to wait.
    Wait(LockWait),
}

/// The NLM program, version 4.
#[derive(Debug)]
pub struct Nlm<V, H = HandleCodec> {
    vfs: Arc<V>,
    handles: H,
    shared: SharedLocks,
}

/// The decoded subject of a lock call.
struct LockTarget<O> {
    object: O,
    export: NonZeroU64,
    file: LockKey,
    owner: Arc<LockOwner>,
    range: ByteRange,
}

impl<V: Vfs, H: Handles<V::Object>> Nlm<V, H> {
    /// Keeps locks for the files of `vfs`; `handles` decodes their handles.
    pub fn new(vfs: Arc<V>, handles: H) -> Self {
        Self { vfs, handles, shared: SharedLocks::default() }
    }

    /// Executes a procedure with encoded arguments.
    pub async fn call(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<LockAnswer, CallError> {
        let procedure =
            NlmProcedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        Ok(LockAnswer::Reply(match procedure {
            NlmProcedure::Null => encode(&<()>::decode_all(args)?),
            NlmProcedure::Test => encode(&self.test(caller, decode(args)?).await),
            NlmProcedure::Lock => return Ok(self.lock(caller, decode(args)?, true).await),
            NlmProcedure::NmLock => return Ok(self.lock(caller, decode(args)?, false).await),
            NlmProcedure::Cancel => encode(&self.cancel(caller, &decode(args)?)),
            NlmProcedure::Unlock => encode(&self.unlock(caller, &decode(args)?)),
            NlmProcedure::Granted => {
                let TestArgs { cookie, .. } = decode(args)?;
                // GRANTED answers a LOCK of ours; this server sends none.
                encode(&NlmReply { cookie, status: NlmStatus::Denied })
            }
            NlmProcedure::Share => encode(&share(decode(args)?, NlmStatus::DeniedNoLocks)),
            NlmProcedure::Unshare => encode(&share(decode(args)?, NlmStatus::Granted)),
            NlmProcedure::FreeAll => encode(&self.free_all(caller, &decode(args)?)),
        }))
    }

    /// Changes when a waiting LOCK may have a reply: a lock was released, or a LOCK was cancelled.
    pub fn changes(&self) -> u64 {
        self.shared.locks().changes()
    }

    async fn test(&self, caller: &Caller, args: TestArgs) -> TestReply {
        let TestArgs { cookie, exclusive, lock } = args;
        let LockTarget { object, file, owner, range, .. } = match self.target(caller, &lock) {
            Ok(target) => target,
            Err(status) => return TestReply::Other(NlmReply { cookie, status }),
        };
        if let Err(error) = self.vfs.getattr(caller, &object).await {
            return TestReply::Other(NlmReply { cookie, status: to_lock_status(error) });
        }
        let locks = self.shared.locks();
        match locks.table.conflict(file, &owner, range, exclusive) {
            Some(held) => TestReply::Denied {
                cookie,
                holder: Holder {
                    exclusive: held.exclusive,
                    svid: held.owner.svid,
                    owner: held.owner.handle.clone(),
                    offset: held.range.first,
                    length: held.range.length(),
                },
            },
            None => TestReply::Other(NlmReply { cookie, status: NlmStatus::Granted }),
        }
    }

    async fn lock(&self, caller: &Caller, args: LockArgs, monitored: bool) -> LockAnswer {
        let LockArgs { cookie, block, exclusive, lock, state, .. } = args;
        let LockTarget { object, export, file, owner, range } = match self.target(caller, &lock) {
            Ok(target) => target,
            Err(status) => return LockAnswer::Reply(encode(&NlmReply { cookie, status })),
        };
        let state = monitored.then_some(state);
        let wanted = LockRequest { export, file, owner, range, exclusive, state };
        let asked = self.shared.ask(cookie, wanted);
        if let Err(error) = self.vfs.getattr(caller, &object).await {
            return LockAnswer::Reply(asked.reply(to_lock_status(error)));
        }
        match asked.retry() {
            Some(reply) => LockAnswer::Reply(reply),
            None if !block => LockAnswer::Reply(asked.reply(NlmStatus::Denied)),
            None if asked.may_wait() => LockAnswer::Wait(asked),
            None => LockAnswer::Reply(asked.give_up()),
        }
    }

    /// Denied if no LOCK waits: the lock may have been granted already, and after Denied the client
    /// unlocks it.
    fn cancel(&self, caller: &Caller, args: &CancelArgs) -> NlmReply {
        let status = match self.target(caller, &args.lock) {
            Ok(LockTarget { file, owner, range, .. }) => {
                match self.shared.locks().cancel(file, &owner, range) {
                    true => NlmStatus::Granted,
                    false => NlmStatus::Denied,
                }
            }
            Err(status) => status,
        };
        NlmReply { cookie: args.cookie.clone(), status }
    }

    /// Also works for a file that is gone, so that its locks do not remain.
    fn unlock(&self, caller: &Caller, args: &UnlockArgs) -> NlmReply {
        let status = match self.target(caller, &args.lock) {
            Ok(LockTarget { export, file, owner, range, .. }) => {
                let mut locks = self.shared.locks();
                locks.cancel(file, &owner, range);
                match locks.table.unlock(export, file, &owner, range) {
                    Ok(()) => NlmStatus::Granted,
                    Err(_full) => NlmStatus::DeniedNoLocks,
                }
            }
            Err(status) => status,
        };
        NlmReply { cookie: args.cookie.clone(), status }
    }

    fn free_all(&self, caller: &Caller, args: &FreeAllArgs) {
        self.shared.locks().free(&client(caller, &args.caller_name));
    }

    /// Decodes the subject of a lock; the file may be gone.
    fn target(&self, caller: &Caller, lock: &Lock) -> Result<LockTarget<V::Object>, NlmStatus> {
        let object = self.handles.decode(&lock.handle).map_err(to_lock_status)?;
        let range = ByteRange::new(lock.offset, lock.length).ok_or(NlmStatus::TooLarge)?;
        let owner = LockOwner {
            client: client(caller, &lock.caller_name),
            svid: lock.svid,
            handle: Bytes::copy_from_slice(&lock.owner),
        };
        let (export, file) = (self.vfs.export_number(&object), self.vfs.lock_key(&object));
        Ok(LockTarget { object, export, file, owner: Arc::new(owner), range })
    }
}

/// The client of a call; copied, so that a lock does not keep the call's record in memory.
fn client(caller: &Caller, name: &[u8]) -> LockClient {
    LockClient {
        address: caller.client.ip().to_canonical(),
        name: Bytes::copy_from_slice(name),
        has_privileged_port: caller.has_privileged_port(),
    }
}

fn share(args: ShareArgs, status: NlmStatus) -> ShareReply {
    ShareReply(NlmReply { cookie: args.cookie, status })
}
