//! From a record to a reply: header, credentials, program, version, reply cache, procedure.

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tokio::time::timeout_at;

use super::limits::{EQUAL_CALL_WAIT, OWN_REPLY_BYTES};
use super::presence::Presence;
use super::program::RpcProgram;
use super::reply_cache::{CallKey, Entered, ReplyCache, ReplySegments};
use crate::nfs::CallError;
use crate::vfs::{CallId, Caller, Flavor};
use crate::wire::rpc::{AuthStatus, Call, CallRejection, Credential, PROC_NULL, RpcStatus};

/// First bytes of NFS results that say "ask again later" (NFS3ERR_JUKEBOX, RFC 1813 §2.6):
/// replaying them would keep the client from ever getting another answer.
const STATUS_JUKEBOX: [u8; 4] = 10_008_u32.to_be_bytes();

/// The programs that are served, and the replies that were given.
pub(super) struct Dispatcher {
    programs: Vec<Arc<dyn RpcProgram>>,
    cache: ReplyCache,
}

/// Where a record came from.
#[derive(Debug)]
pub(super) struct RecordOrigin {
    /// The client's address.
    pub(super) peer: SocketAddr,
    /// Whether the connection is still read from.
    pub(super) presence: Arc<Presence>,
    /// Whether only NULL is answered, because the client's port is not privileged.
    pub(super) untrusted_port: bool,
    /// Whether root is squashed.
    pub(super) squashes_root: bool,
}

impl RecordOrigin {
    /// That of a datagram, to which no reply is kept.
    pub(super) fn of_datagram(peer: SocketAddr) -> Self {
        let presence = Arc::new(Presence::new(peer.port()));
        Self { peer, presence, untrusted_port: false, squashes_root: false }
    }
}

/// A call that found its program, ready to be carried out.
pub(super) struct DecodedCall {
    call: Call,
    record: Bytes,
    program: Arc<dyn RpcProgram>,
}

/// What a call came to.
pub(super) struct CallResult {
    pub(super) reply: ReplySegments,
    /// Whether it made no sense: no such procedure, or arguments that are none.
    pub(super) is_refused: bool,
}

/// What is done with a record.
pub(super) enum Disposition {
    /// Carry the call out.
    Run(DecodedCall),
    /// Answer this.
    Reply(ReplySegments),
    /// Nothing.
    Ignore,
    /// Close the connection: the stream makes no sense.
    HangUp,
    /// Answer this: the client's port is not privileged.
    RefusePort(ReplySegments),
}

impl DecodedCall {
    /// Whether it is the call that does nothing, for anybody.
    pub(super) fn is_null(&self) -> bool {
        self.call.procedure == PROC_NULL
    }

    /// Whom the call is for.
    pub(super) fn tenant(&self) -> Option<NonZeroU64> {
        self.program.tenant(self.call.procedure, &self.call.args)
    }

    /// The bytes of memory that the reply may come to.
    pub(super) fn reply_bytes(&self) -> usize {
        self.program.reply_bytes(self.call.procedure, &self.call.args)
    }

    /// The bytes of memory that the reply has to be given, where there is no room for more.
    pub(super) fn least_reply_bytes(&self) -> usize {
        let bytes = self.reply_bytes();
        let may_be_short = bytes > OWN_REPLY_BYTES && self.may_be_short();
        if may_be_short { OWN_REPLY_BYTES } else { bytes }
    }

    /// Makes the reply come to `bytes` bytes at most, which are not less than the least.
    pub(super) fn shorten_reply(&mut self, bytes: usize) {
        if self.may_be_short() {
            let args = std::mem::take(&mut self.call.args);
            self.call.args = self.program.shorten(self.call.procedure, args, bytes);
        }
    }

    /// A call whose first transmission may have been answered has to get the same answer.
    fn may_be_short(&self) -> bool {
        let procedure = self.call.procedure;
        self.program.may_be_short(procedure) && !self.program.is_replayed(procedure)
    }
}

impl Dispatcher {
    /// Serves `programs`; several versions of one program may be among them.
    pub(super) fn new(programs: Vec<Arc<dyn RpcProgram>>, cache: ReplyCache) -> Self {
        Self { programs, cache }
    }

    /// Reads the header of `record` and finds the program that it calls.
    pub(super) fn prepare(&self, origin: &RecordOrigin, record: Bytes) -> Disposition {
        let call = match Call::parse(record.clone()) {
            Ok(call) => call,
            Err(CallRejection::Garbage) => return Disposition::HangUp,
            Err(CallRejection::NotACall) => return Disposition::Ignore,
            Err(CallRejection::Answer(xid, status)) => {
                return Disposition::Reply(refuse(xid, status));
            }
        };
        let program = match self.find(call.program, call.version) {
            Ok(program) => program,
            Err(status) => return Disposition::Reply(refuse(call.xid, status)),
        };
        if origin.untrusted_port && call.procedure != PROC_NULL {
            let status = RpcStatus::AuthError(AuthStatus::TooWeak);
            return Disposition::RefusePort(refuse(call.xid, status));
        }
        Disposition::Run(DecodedCall { call, record, program })
    }

    /// Carries a call out, or finds out what its first transmission got; `None` if there is
    /// nothing to answer.
    pub(super) async fn run(
        &self,
        origin: &RecordOrigin,
        prepared: DecodedCall,
    ) -> Option<CallResult> {
        let DecodedCall { call, record, program } = prepared;
        if !program.is_replayed(call.procedure) {
            drop(record);
            return Some(carry_out(&*program, origin, call, None).await);
        }
        let args_at = record.len() - call.args.len();
        let key = CallKey::new(origin.peer.ip(), call.xid, call.procedure, &record, args_at);
        // Only the arguments hold on to the record's memory from here on.
        drop(record);
        match self.enter(key, &origin.presence).await {
            Entered::Done(reply) => {
                tracing::debug!(client = %origin.peer, xid = call.xid, "replayed a reply");
                Some(CallResult { reply, is_refused: false })
            }
            Entered::InProgress(waiting) => {
                waiting.reply().await.map(|reply| CallResult { reply, is_refused: false })
            }
            Entered::New(slot) => {
                let id = Some(key.digest());
                let answered = carry_out(&*program, origin, call, id).await;
                let reply = &answered.reply;
                slot.finish(reply, !says_jukebox(reply), Instant::now());
                Some(answered)
            }
            Entered::Doubtful(_) => None,
        }
    }

    /// Looks a call up in the reply cache. Where an equal call came over another connection, waits
    /// a little for that one's end: the end and the retransmission come over different sockets.
    async fn enter(&self, key: CallKey, from: &Arc<Presence>) -> Entered<'_> {
        let mut until = None;
        loop {
            match self.cache.enter(key, from, Instant::now()) {
                Entered::Doubtful(other) => {
                    let now = tokio::time::Instant::now();
                    let until = *until.get_or_insert(now + EQUAL_CALL_WAIT);
                    if timeout_at(until, other.ended()).await.is_err() {
                        return self.cache.enter_beside(key, from, Instant::now());
                    }
                }
                entered => return entered,
            }
        }
    }

    fn find(&self, number: u32, version: u32) -> Result<Arc<dyn RpcProgram>, RpcStatus> {
        let mut range: Option<(u32, u32)> = None;
        for program in self.programs.iter().filter(|program| program.number() == number) {
            let here = program.version();
            if here == version {
                return Ok(Arc::clone(program));
            }
            let (low, high) = range.unwrap_or((here, here));
            range = Some((low.min(here), high.max(here)));
        }
        Err(match range {
            Some((low, high)) => RpcStatus::ProgramMismatch { low, high },
            None => RpcStatus::ProgramUnavailable,
        })
    }
}

/// Carries a call out; a panic becomes SYSTEM_ERR.
async fn carry_out(
    program: &dyn RpcProgram,
    origin: &RecordOrigin,
    call: Call,
    id: Option<CallId>,
) -> CallResult {
    let caller = Caller { call: id, ..caller(origin, call.credential) };
    let (xid, procedure) = (call.xid, call.procedure);
    if program.is_too_weak(&caller, procedure, &call.args) {
        let reply = refuse(xid, RpcStatus::AuthError(AuthStatus::TooWeak));
        return CallResult { reply, is_refused: true };
    }
    let work = async { program.call(&caller, procedure, call.args).await };
    let status = match Contained(pin!(work)).await {
        Ok(Ok(results)) => {
            let mut reply = RpcStatus::Success.encode_header(xid);
            reply.append(results);
            return CallResult { reply: reply.into_segments(), is_refused: false };
        }
        Ok(Err(CallError::GarbageArgs(_))) => RpcStatus::GarbageArgs,
        Ok(Err(CallError::ProcedureUnavailable)) => RpcStatus::ProcedureUnavailable,
        Err(panic) => {
            let what = describe(&*panic);
            tracing::error!(program = program.number(), procedure, what, "a handler panicked");
            RpcStatus::SystemError
        }
    };
    CallResult { reply: refuse(xid, status), is_refused: status != RpcStatus::SystemError }
}

/// Who calls. AUTH_NONE is nobody, never root; nor is AUTH_SYS where root is squashed.
fn caller(origin: &RecordOrigin, credential: Credential) -> Caller {
    let client = origin.peer;
    let caller = match credential {
        Credential::None => {
            let nobody = Caller::NOBODY;
            Caller {
                client,
                flavor: Flavor::None,
                uid: nobody,
                gid: nobody,
                gids: Vec::new(),
                call: None,
                is_owner: false,
            }
        }
        Credential::Sys(sys) => Caller {
            client,
            flavor: Flavor::Sys,
            uid: sys.uid,
            gid: sys.gid,
            gids: sys.gids,
            call: None,
            is_owner: false,
        },
    };
    if origin.squashes_root { caller.root_squashed() } else { caller }
}

fn refuse(xid: u32, status: RpcStatus) -> ReplySegments {
    status.encode_header(xid).into_segments()
}

/// Whether the results, behind the 24 bytes of an accepted reply's header, begin with JUKEBOX.
fn says_jukebox(reply: &ReplySegments) -> bool {
    const RESULTS_AT: usize = 24;
    let status = reply.first().and_then(|head| head.get(RESULTS_AT..RESULTS_AT + 4));
    status == Some(&STATUS_JUKEBOX)
}

/// A future whose panics are caught.
struct Contained<F>(F);

impl<F: Future + Unpin> Future for Contained<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the future is never polled again: its caller returns.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

fn describe(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
