//! Processes a record into a reply: header, credentials, program, version, reply cache, procedure.

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

use super::call_stats::{ReplyKind, RpcStats};
use super::limits::{EQUAL_CALL_WAIT, OWN_REPLY_BYTES};
use super::liveness::ConnectionLiveness;
use super::program::RpcProgram;
use super::reply_cache::{CacheLookup, CallKey, ReplyCache, ReplySegments};
use crate::counters;
use crate::nfs::CallError;
use crate::vfs::{CallId, Caller, Flavor};
use crate::wire::rpc::{AuthStatus, Call, CallRejection, Credential, PROC_NULL, RpcStatus};

/// First bytes of NFS results with NFS3ERR_JUKEBOX (RFC 1813 §2.6), which makes the client retry. A
/// cached reply would repeat the error for ever.
const STATUS_JUKEBOX: [u8; 4] = 10_008_u32.to_be_bytes();

/// Where the results begin: behind the header of an accepted reply.
const RESULTS_AT: usize = 24;

/// The programs to serve, and the reply cache.
pub(super) struct Dispatcher {
    programs: Vec<Arc<dyn RpcProgram>>,
    cache: Arc<ReplyCache>,
    stats: Arc<RpcStats>,
}

/// The source of a record.
#[derive(Debug)]
pub(super) struct RecordOrigin {
    /// The client's address.
    pub(super) peer: SocketAddr,
    /// Whether the connection is still read from.
    pub(super) liveness: Arc<ConnectionLiveness>,
    /// Whether only NULL is answered, because the client's port is unprivileged.
    pub(super) untrusted_port: bool,
    /// Whether root is squashed.
    pub(super) squashes_root: bool,
}

impl RecordOrigin {
    /// The origin of a datagram. Its replies are not cached.
    pub(super) fn of_datagram(peer: SocketAddr) -> Self {
        let liveness = Arc::new(ConnectionLiveness::new(peer.port()));
        Self { peer, liveness, untrusted_port: false, squashes_root: false }
    }
}

/// A call with its program, ready to execute.
pub(super) struct DecodedCall {
    call: Call,
    record: Bytes,
    program: Arc<dyn RpcProgram>,
    /// The index of `program`.
    program_at: usize,
    /// When the request was complete.
    began: Instant,
}

/// The outcome of a call.
pub(super) struct CallResult {
    pub(super) reply: ReplySegments,
    kind: ReplyKind,
}

impl CallResult {
    /// Whether the call was invalid: unknown procedure, undecodable arguments or weak credentials.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.kind, ReplyKind::Refused(status) if status != RpcStatus::SystemError)
    }
}

/// What to do with a record.
pub(super) enum Disposition {
    /// Execute the call.
    Run(DecodedCall),
    /// Send this reply.
    Reply(ReplySegments),
    /// Drop the record.
    Ignore,
    /// Close the connection: the stream is garbage.
    HangUp,
    /// Send this refusal: the client's port is unprivileged.
    RefusePort(ReplySegments),
}

impl DecodedCall {
    /// Whether this is the NULL procedure, which every caller may use.
    pub(super) fn is_null(&self) -> bool {
        self.call.procedure == PROC_NULL
    }

    /// The tenant of the call, if its arguments identify it.
    pub(super) fn tenant(&self) -> Option<NonZeroU64> {
        self.program.tenant(self.call.procedure, &self.call.args)
    }

    /// Upper bound of the reply's memory in bytes.
    pub(super) fn reply_bytes(&self) -> usize {
        self.program.reply_bytes(self.call.procedure, &self.call.args)
    }

    /// Reply bytes that the call needs even under pressure: less than the maximum if it may be
    /// short.
    pub(super) fn least_reply_bytes(&self) -> usize {
        let bytes = self.reply_bytes();
        let may_be_short = bytes > OWN_REPLY_BYTES && self.may_be_short();
        if may_be_short { OWN_REPLY_BYTES } else { bytes }
    }

    /// Limits the reply to `bytes` bytes, which are at least [`DecodedCall::least_reply_bytes`].
    pub(super) fn shorten_reply(&mut self, bytes: usize) {
        if self.may_be_short() {
            let args = std::mem::take(&mut self.call.args);
            self.call.args = self.program.shorten(self.call.procedure, args, bytes);
        }
    }

    /// Whether the reply may be short. False for replayed procedures: a retransmission must get the
    /// same reply.
    fn may_be_short(&self) -> bool {
        let procedure = self.call.procedure;
        self.program.may_be_short(procedure) && !self.program.is_non_idempotent(procedure)
    }
}

impl Dispatcher {
    /// Serves `programs`, which may contain several versions of one program.
    pub(super) fn new(programs: Vec<Arc<dyn RpcProgram>>, cache: ReplyCache) -> Self {
        let stats = Arc::new(RpcStats::new(programs.iter().map(|program| program.names())));
        Self { programs, cache: Arc::new(cache), stats }
    }

    /// The counts of calls.
    pub(super) fn stats(&self) -> Arc<RpcStats> {
        Arc::clone(&self.stats)
    }

    /// The reply cache.
    pub(super) fn cache(&self) -> Arc<ReplyCache> {
        Arc::clone(&self.cache)
    }

    /// Decodes the header of `record`, which was complete at `began`, and finds its program.
    pub(super) fn prepare(
        &self,
        origin: &RecordOrigin,
        record: Bytes,
        began: Instant,
    ) -> Disposition {
        let call = match Call::parse(record.clone()) {
            Ok(call) => call,
            Err(CallRejection::Garbage) => return Disposition::HangUp,
            Err(CallRejection::NotACall) => return Disposition::Ignore,
            Err(CallRejection::Answer(xid, status)) => {
                return Disposition::Reply(refuse(xid, status));
            }
        };
        let (program_at, program) = match self.find(call.program, call.version) {
            Ok(found) => found,
            Err(status) => return Disposition::Reply(refuse(call.xid, status)),
        };
        if origin.untrusted_port && call.procedure != PROC_NULL {
            let status = RpcStatus::AuthError(AuthStatus::TooWeak);
            return Disposition::RefusePort(refuse(call.xid, status));
        }
        Disposition::Run(DecodedCall { call, record, program, program_at, began })
    }

    /// Executes a call, or returns the reply to its first transmission. `None` if there is no reply
    /// to send.
    pub(super) async fn run(
        &self,
        origin: &RecordOrigin,
        prepared: DecodedCall,
    ) -> Option<CallResult> {
        let DecodedCall { program_at, began, .. } = prepared;
        let procedure = prepared.call.procedure;
        let answered = self.answer(origin, prepared).await?;
        if counters::are_on() {
            let results = answered.reply.first().and_then(|head| head.get(RESULTS_AT..));
            let (kind, results) = (answered.kind, results.unwrap_or_default());
            self.stats.count(program_at, procedure, kind, results, began.elapsed());
        }
        Some(answered)
    }

    async fn answer(&self, origin: &RecordOrigin, prepared: DecodedCall) -> Option<CallResult> {
        let DecodedCall { call, record, program, .. } = prepared;
        if !program.is_non_idempotent(call.procedure) {
            drop(record);
            return Some(carry_out(&*program, origin, call, None).await);
        }
        let args_at = record.len() - call.args.len();
        let key = CallKey::new(origin.peer.ip(), call.xid, call.procedure, &record, args_at);
        // From here on only the arguments keep the record's memory.
        drop(record);
        match self.enter(key, &origin.liveness).await {
            CacheLookup::Done(reply) => {
                tracing::debug!(client = %origin.peer, xid = call.xid, "replayed a reply");
                Some(CallResult { reply, kind: ReplyKind::Repeated })
            }
            CacheLookup::InProgress(waiting) => {
                waiting.reply().await.map(|reply| CallResult { reply, kind: ReplyKind::Repeated })
            }
            CacheLookup::New(slot) => {
                let id = Some(key.digest());
                let answered = carry_out(&*program, origin, call, id).await;
                let reply = &answered.reply;
                slot.finish(reply, !says_jukebox(reply), Instant::now());
                Some(answered)
            }
            CacheLookup::MaybeRetransmission(_) => None,
        }
    }

    /// Looks a call up in the reply cache. If an equal call came over another open connection,
    /// waits up to [`EQUAL_CALL_WAIT`] for its end: the close and the retransmission arrive on
    /// different sockets, in any order.
    async fn enter(&self, key: CallKey, from: &Arc<ConnectionLiveness>) -> CacheLookup<'_> {
        let mut until = None;
        loop {
            match self.cache.enter(key, from, Instant::now()) {
                CacheLookup::MaybeRetransmission(other) => {
                    let now = tokio::time::Instant::now();
                    let until = *until.get_or_insert(now + EQUAL_CALL_WAIT);
                    if timeout_at(until, other.ended()).await.is_err() {
                        return self.cache.enter_as_new(key, from, Instant::now());
                    }
                }
                entered => return entered,
            }
        }
    }

    /// The program with its index.
    fn find(&self, number: u32, version: u32) -> Result<(usize, Arc<dyn RpcProgram>), RpcStatus> {
        let mut range: Option<(u32, u32)> = None;
        let named = self.programs.iter().enumerate();
        for (at, program) in named.filter(|(_, program)| program.number() == number) {
            let here = program.version();
            if here == version {
                return Ok((at, Arc::clone(program)));
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

/// Executes a call; a panic becomes SYSTEM_ERR.
async fn carry_out(
    program: &dyn RpcProgram,
    origin: &RecordOrigin,
    call: Call,
    id: Option<CallId>,
) -> CallResult {
    let caller = Caller { call: id, ..caller(origin, call.credential) };
    let (xid, procedure) = (call.xid, call.procedure);
    if program.is_too_weak(&caller, procedure, &call.args) {
        let status = RpcStatus::AuthError(AuthStatus::TooWeak);
        let reply = refuse(xid, status);
        return CallResult { reply, kind: ReplyKind::Refused(status) };
    }
    let work = async { program.call(&caller, procedure, call.args).await };
    let status = match Contained(pin!(work)).await {
        Ok(Ok(results)) => {
            let mut reply = RpcStatus::Success.encode_header(xid);
            reply.append(results);
            return CallResult { reply: reply.into_segments(), kind: ReplyKind::Results };
        }
        Ok(Err(CallError::GarbageArgs(_))) => RpcStatus::GarbageArgs,
        Ok(Err(CallError::ProcedureUnavailable)) => RpcStatus::ProcedureUnavailable,
        Err(panic) => {
            let what = describe(&*panic);
            tracing::error!(program = program.number(), procedure, what, "a handler panicked");
            RpcStatus::SystemError
        }
    };
    CallResult { reply: refuse(xid, status), kind: ReplyKind::Refused(status) }
}

/// The caller of a record. AUTH_NONE is the anonymous user; so is uid 0 of AUTH_SYS if root is
/// squashed.
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

/// Whether the results begin with JUKEBOX.
fn says_jukebox(reply: &ReplySegments) -> bool {
    let status = reply.first().and_then(|head| head.get(RESULTS_AT..RESULTS_AT + 4));
    status == Some(&STATUS_JUKEBOX)
}

/// A future that turns a panic into an error.
struct Contained<F>(F);

impl<F: Future + Unpin> Future for Contained<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The caller never polls again after a panic.
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
