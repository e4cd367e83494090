//! One client connection: reads records, executes calls, writes replies.
//!
//! A single task reads. It polls each call once, so that a call answered from a cache needs no task
//! switch. A suspended call continues on the thread that wakes it, or as a task (`inline_task`).
//! Calls outlive the connection: they run to their end, and the reply cache keeps their replies.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};

use super::busy_poll::BusyPoll;
use super::connection_budget::{ConnectionBudget, RequestPermit};
use super::dispatch::{DecodedCall, Disposition, RecordOrigin};
use super::incoming::Incoming;
use super::inline_task::run_inline;
use super::liveness::ConnectionLiveness;
use super::monitor::RecordRefusal;
use super::outgoing::Outgoing;
use super::peers::Peer;
use super::reply_cache::ReplySegments;
use super::{ServerShared, StopSignal};
use crate::request_id;
use crate::wire::record::RecordError;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("the client closed it")]
    Closed,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("no request for too long")]
    Idle,
    #[error("a record did not become whole in time")]
    RecordTimeout,
    #[error("a reply could not be sent")]
    ReplyFailed,
    #[error("others need the connection")]
    Evicted,
    #[error("what it sends is not RPC")]
    Garbage,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// State that the requests of one connection share.
pub(super) struct ConnectionState {
    pub(super) shared: Arc<ServerShared>,
    origin: RecordOrigin,
    pub(super) share: ConnectionBudget,
    /// The connection's entry among the open connections.
    pub(super) peer: Arc<Peer>,
    /// Writes one whole reply after another. `None` after a partial write: the client would read
    /// the next reply as the rest of the partial one.
    writer: Mutex<Option<Outgoing>>,
    /// Notified when a reply was not sent whole and the stream is unusable.
    broken: Notify,
}

/// Serves one connection until it ends.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<ServerShared>,
    stop: StopSignal,
) -> ConnectionEnd {
    let resets = shared.resets;
    if let Err(error) = stream.set_nodelay(true).and_then(|()| match resets {
        true => SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
        false => Ok(()),
    }) {
        return error.into();
    }
    let (reader, writer) = stream.into_split();
    let entered = shared.peers.enter(peer);
    let origin = RecordOrigin {
        peer,
        liveness: Arc::clone(&entered.peer.liveness),
        untrusted_port: shared.refuses_port(peer),
        squashes_root: shared.squash_root,
    };
    let usage = Arc::clone(&entered.peer.usage);
    let connection = Arc::new(ConnectionState {
        origin,
        share: ConnectionBudget::new(shared.limits.connection_requests, usage),
        peer: Arc::clone(&entered.peer),
        writer: Mutex::new(Some(Outgoing::new(writer))),
        broken: Notify::new(),
        shared,
    });
    let mut incoming = Incoming::new(reader, connection.shared.limits.record_bytes);
    let is_read = IsRead(&entered.peer.liveness);
    let ending = tokio::select! {
        ending = read_requests(&mut incoming, &connection) => ending,
        () = connection.broken.notified() => ConnectionEnd::ReplyFailed,
        () = entered.peer.unwanted.notified() => ConnectionEnd::Evicted,
        () = stop.clone().wait() => ConnectionEnd::ShuttingDown,
    };
    drop(is_read);
    match ending {
        ConnectionEnd::Evicted => connection.hang_up(&incoming),
        ConnectionEnd::ReplyFailed | ConnectionEnd::ShuttingDown => {}
        // Keeps its connection permit until the last reply is sent, and can be evicted until then.
        _ => tokio::select! {
            () = connection.share.settled() => {}
            () = connection.broken.notified() => {}
            () = entered.peer.unwanted.notified() => connection.hang_up(&incoming),
            () = stop.wait() => {}
        },
    }
    if resets {
        incoming.close_in_order();
    }
    ending
}

/// Marks the connection as no longer read from when dropped.
struct IsRead<'a>(&'a ConnectionLiveness);

impl Drop for IsRead<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reads requests and starts their calls until the connection ends.
async fn read_requests(
    incoming: &mut Incoming,
    connection: &Arc<ConnectionState>,
) -> ConnectionEnd {
    let mut busy_poll = BusyPoll::default();
    loop {
        connection.rest().await;
        let (record, bytes_room) = match incoming.next(connection, &mut busy_poll).await {
            Ok(record) => record,
            Err(ending) => return ending,
        };
        let arrived = Instant::now();
        connection.peer.count_call(arrived);
        connection.shared.stats.received_bytes.add(record.len() as u64);
        let room = connection.share.take_request(&connection.shared.budget).await;
        let begun = request_id::within(request_id::next(), || {
            connection.begin(record, arrived, [bytes_room, room])
        });
        if let Err(ending) = begun {
            return ending;
        }
    }
}

impl ConnectionState {
    /// Starts the call in `record`, which was complete at `arrived`, or refuses it.
    ///
    /// # Errors
    /// The stream is garbage.
    fn begin(
        self: &Arc<Self>,
        record: Bytes,
        arrived: Instant,
        room: [RequestPermit; 2],
    ) -> Result<(), ConnectionEnd> {
        let (refusal, reply) = match self.shared.dispatcher.prepare(&self.origin, record, arrived) {
            Disposition::Run(prepared) => {
                self.peer.note_tenant(|| prepared.tenant());
                run_inline(Arc::clone(self).answer(prepared, room));
                return Ok(());
            }
            Disposition::Ignore => (RecordRefusal::NotACall, None),
            Disposition::HangUp => {
                self.shared.stats.refused(RecordRefusal::Garbage);
                return Err(ConnectionEnd::Garbage);
            }
            Disposition::RefusePort(reply) => {
                self.shared.warn_of_port(self.origin.peer);
                (RecordRefusal::Port, Some(reply))
            }
            Disposition::Reply(reply) => (RecordRefusal::Header, Some(reply)),
        };
        self.shared.stats.refused(refusal);
        self.peer.reputation.refused();
        if let Some(reply) = reply {
            run_inline(Arc::clone(self).send_refusal(reply, room));
        }
        Ok(())
    }

    /// Shuts the connection down in both directions and closes the socket. Its permit goes to
    /// another client while calls in flight run to their end.
    fn hang_up(&self, incoming: &Incoming) {
        incoming.hang_up();
        // A reply that is being sent fails, and its writer is dropped with it.
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
    }

    /// Pauses after too many invalid calls: answering them costs more than sending them.
    async fn rest(&self) {
        if self.peer.reputation.is_throttled() {
            self.shared.stats.paused.add(1);
            sleep(self.shared.limits.refusal_pause).await;
        }
    }

    /// Executes a call and sends its reply, while it holds the request's permits.
    async fn answer(self: Arc<Self>, mut prepared: DecodedCall, _room: [RequestPermit; 2]) {
        let overall = &self.shared.budget;
        let (bytes, least) = (prepared.reply_bytes(), prepared.least_reply_bytes());
        let is_unproven = self.peer.reputation.is_unproven();
        let mut reply_room = self.share.take_reply(overall, bytes, least, is_unproven).await;
        if reply_room.bytes() < bytes {
            prepared.shorten_reply(reply_room.bytes());
        }
        let is_null = prepared.is_null();
        let Some(answered) = self.shared.dispatcher.run(&self.origin, prepared).await else {
            return;
        };
        match answered.is_refused() || self.origin.untrusted_port {
            true => self.peer.reputation.refused(),
            false if is_null => {}
            false => self.peer.reputation.answered(),
        }
        let bytes = answered.reply.iter().map(Bytes::len).sum();
        if bytes > reply_room.bytes() {
            // The list became longer than `reply_bytes` estimated.
            drop(reply_room);
            reply_room = self.share.take_reply(overall, bytes, bytes, is_unproven).await;
        }
        reply_room.shrink(bytes);
        self.send(answered.reply, reply_room.is_common()).await;
    }

    async fn send_refusal(self: Arc<Self>, reply: ReplySegments, _room: [RequestPermit; 2]) {
        self.send(reply, false).await;
    }

    /// Sends a reply; `is_common` says whether its permit counts against the shared budget.
    async fn send(&self, reply: ReplySegments, is_common: bool) {
        let sending = async {
            let mut place = self.writer.lock().await;
            // Put back after a complete write; an error or the timeout drops it, which closes it.
            let Some(mut writer) = place.take() else { return Ok(()) };
            let reputation = &self.peer.reputation;
            let sent = writer.send(&reply, reputation.is_unproven()).await?;
            reputation.took(sent);
            self.shared.stats.sent_bytes.add(sent as u64);
            *place = Some(writer);
            io::Result::Ok(())
        };
        match self.in_time(sending, is_common).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::debug!(client = %self.origin.peer, %error, "cannot send a reply");
                self.broken.notify_one();
            }
            None => {
                tracing::debug!(client = %self.origin.peer, "the client takes no replies");
                self.broken.notify_one();
            }
        }
    }

    /// Waits until a reply is sent. Gives up early while others wait for the memory that it holds.
    async fn in_time<T>(&self, sending: impl Future<Output = T>, is_common: bool) -> Option<T> {
        let limits = &self.shared.limits;
        let mut sending = pin!(sending);
        let mut left = limits.reply_timeout;
        while !left.is_zero() {
            let patience = left.min(limits.pressure_timeout);
            let begun = self.shared.budget.reply_pressure();
            if let Ok(sent) = timeout(patience, sending.as_mut()).await {
                return Some(sent);
            }
            self.peer.reputation.stalled();
            left = left.saturating_sub(patience);
            if self.shared.budget.is_under_pressure(begun, is_common) {
                break;
            }
        }
        None
    }
}
