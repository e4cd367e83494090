//! One client's connection: records in, replies out.
//!
//! A single task reads. Each request becomes a future, is polled once on that task (what a
//! cache knows is answered without a hop), and goes to a task of its own if it has to wait.
//! Requests outlive the connection: what was begun is finished, and the reply kept.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::budget::{Budget, Room};
use super::dispatch::{Next, Origin, Prepared};
use super::limits::{
    MAX_CONNECTION_REPLY_BYTES, MAX_CONNECTION_REQUEST_BYTES, READ_BUFFER_BYTES,
    SMALL_REQUEST_BYTES,
};
use super::lookout::Lookout;
use super::peers::Peer;
use super::reply_cache::Reply;
use super::{Shared, StopSignal};
use crate::wire::record::{self, RecordError, RecordReader};

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
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
    Crowded,
    #[error("what it sends makes no sense")]
    Garbage,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What the requests of one connection share.
struct Connection {
    shared: Arc<Shared>,
    origin: Origin,
    budget: Budget,
    /// How it has behaved, for all to see.
    peer: Arc<Peer>,
    /// Replies go out whole, one after another; `None` once one did not: a client that reads on
    /// would take the next reply for the rest of that one.
    writer: Mutex<Option<OwnedWriteHalf>>,
    /// A reply could not be sent whole: the stream is of no more use.
    broken: Notify,
}

/// Serves one connection until it ends.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    stop: StopSignal,
) -> Ending {
    if let Err(error) = stream.set_nodelay(true) {
        return error.into();
    }
    let (reader, writer) = stream.into_split();
    let entered = shared.peers.enter(peer);
    let connection = Arc::new(Connection {
        origin: Origin { peer, untrusted_port: shared.refuses_port(peer) },
        budget: Budget::new(
            shared.limits.connection_requests,
            MAX_CONNECTION_REQUEST_BYTES,
            MAX_CONNECTION_REPLY_BYTES,
        ),
        peer: Arc::clone(&entered.peer),
        writer: Mutex::new(Some(writer)),
        broken: Notify::new(),
        shared,
    });
    let incoming = Incoming::new(reader, connection.shared.limits.record_bytes);
    tokio::select! {
        ending = read_requests(incoming, &connection) => ending,
        () = connection.broken.notified() => Ending::ReplyFailed,
        () = entered.peer.unwanted.notified() => Ending::Crowded,
        () = stop.wait() => Ending::ShuttingDown,
    }
}

/// Reads requests and begins their work, until the connection ends.
async fn read_requests(mut incoming: Incoming, connection: &Arc<Connection>) -> Ending {
    let mut lookout = Lookout::default();
    loop {
        connection.rest().await;
        let (record, bytes_room) = match incoming.next(connection, &mut lookout).await {
            Ok(record) => record,
            Err(ending) => return ending,
        };
        connection.peer.count_call();
        let room = connection.budget.take_request(&connection.shared.budget).await;
        let reply = match connection.shared.dispatcher.prepare(&connection.origin, record) {
            Next::Run(prepared) => {
                let work = Arc::clone(connection).answer(prepared, [bytes_room, room]);
                poll_or_spawn(work).await;
                continue;
            }
            Next::Ignore => {
                connection.peer.standing.refused();
                continue;
            }
            Next::HangUp => return Ending::Garbage,
            Next::RefusePort(reply) => {
                connection.shared.warn_of_port(connection.origin.peer);
                reply
            }
            Next::Reply(reply) => reply,
        };
        connection.peer.standing.refused();
        poll_or_spawn(Arc::clone(connection).send_refusal(reply, [bytes_room, room])).await;
    }
}

impl Connection {
    /// Pauses where too many calls made no sense: they cost more to answer than to send.
    async fn rest(&self) {
        if self.peer.standing.is_tiresome() {
            sleep(self.shared.limits.refusal_pause).await;
        }
    }

    /// Works on a call and sends its reply, inside the room that it takes.
    async fn answer(self: Arc<Self>, prepared: Prepared, _room: [Room; 2]) {
        let overall = &self.shared.budget;
        let reply_bytes = prepared.reply_bytes();
        let mut reply_room = self.budget.take_reply_bytes(overall, reply_bytes).await;
        let is_null = prepared.is_null();
        let Some(answered) = self.shared.dispatcher.run(&self.origin, prepared).await else {
            return;
        };
        match answered.is_refused || self.origin.untrusted_port {
            true => self.peer.standing.refused(),
            false if is_null => {}
            false => self.peer.standing.answered(),
        }
        let bytes = answered.reply.iter().map(Bytes::len).sum();
        if bytes > reply_bytes {
            // A list that is longer than was thought.
            drop(reply_room);
            reply_room = self.budget.take_reply_bytes(overall, bytes).await;
        }
        reply_room.shrink(bytes);
        self.send(answered.reply).await;
    }

    async fn send_refusal(self: Arc<Self>, reply: Reply, _room: [Room; 2]) {
        self.send(reply).await;
    }

    async fn send(&self, reply: Reply) {
        let sending = async {
            let mut place = self.writer.lock().await;
            // Put back when all is sent; dropped, and so closed, by an error or by the timeout.
            let Some(mut writer) = place.take() else { return Ok(()) };
            write_record(&mut writer, &reply).await?;
            *place = Some(writer);
            io::Result::Ok(())
        };
        match self.in_time(sending).await {
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

    /// Waits for a reply to be sent: less long while others wait for the room that it takes.
    async fn in_time<T>(&self, sending: impl Future<Output = T>) -> Option<T> {
        let limits = &self.shared.limits;
        let mut sending = pin!(sending);
        let mut left = limits.reply_timeout;
        while !left.is_zero() {
            let patience = left.min(limits.crowded_timeout);
            if let Ok(sent) = timeout(patience, sending.as_mut()).await {
                return Some(sent);
            }
            left = left.saturating_sub(patience);
            if self.shared.budget.is_crowded() {
                break;
            }
        }
        None
    }
}

/// Sends a record as one fragment, with as few writes as the socket takes.
async fn write_record(writer: &mut OwnedWriteHalf, segments: &[Bytes]) -> io::Result<()> {
    let mark = record::mark(segments.iter().map(Bytes::len).sum());
    let mut slices = vec![IoSlice::new(&mark)];
    slices.extend(segments.iter().map(|segment| IoSlice::new(segment)));
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = writer.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Polls `work` once here; gives it a task of its own if it is not done by then.
async fn poll_or_spawn(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    let poll = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    if poll.is_pending() {
        tokio::spawn(work);
    }
}

/// The reading half: bytes that arrived, and the record that they are becoming.
struct Incoming {
    stream: OwnedReadHalf,
    input: BytesMut,
    /// Whether `input` was made for a large record.
    is_large: bool,
    records: RecordReader,
}

impl Incoming {
    fn new(stream: OwnedReadHalf, record_bytes: usize) -> Self {
        let records = RecordReader::new(record_bytes);
        Self { stream, input: BytesMut::new(), is_large: false, records }
    }

    /// Returns the next record, with the room that its bytes take.
    async fn next(
        &mut self,
        connection: &Connection,
        lookout: &mut Lookout,
    ) -> Result<(Bytes, Room), Ending> {
        let limits = &connection.shared.limits;
        let overall = &connection.shared.budget;
        let mut room = None;
        let mut deadline = None;
        let mut crowded_deadline = None;
        loop {
            let record = self.records.next_record(&mut self.input)?;
            let reserved = record.as_ref().map(Bytes::len).or(self.records.reserved_bytes());
            if let (None, Some(bytes)) = (&room, reserved) {
                let is_known = connection.peer.standing.is_known();
                room = Some(connection.budget.take_request_bytes(overall, bytes, is_known).await);
                // The time that we made the client wait is not its own.
                deadline = None;
                let is_large = bytes > SMALL_REQUEST_BYTES;
                crowded_deadline = is_large.then(|| Instant::now() + limits.crowded_timeout);
            }
            room = match (record, room) {
                (Some(record), Some(room)) => {
                    self.let_go();
                    return Ok((record, room));
                }
                (_, room) => room,
            };
            if self.records.is_mid_record(&self.input) {
                let until = *deadline.get_or_insert_with(|| Instant::now() + limits.record_timeout);
                let first = crowded_deadline.map_or(until, |at| until.min(at));
                match timeout_at(first, self.read()).await {
                    Ok(read) => read?,
                    Err(_) if first == until || overall.is_crowded() => {
                        return Err(Ending::RecordTimeout);
                    }
                    // Nobody waits: it may go on, to be looked at again.
                    Err(_) => crowded_deadline = Some(Instant::now() + limits.crowded_timeout),
                }
            } else {
                self.read_first(connection, lookout).await?;
            }
        }
    }

    /// Lets go of the memory of a large record, which has no room any more once that is answered:
    /// what is left of the buffer, be it nothing, would keep all of it.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.is_large) {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// Waits for the first bytes of a record, as long as a connection may be idle.
    async fn read_first(
        &mut self,
        connection: &Connection,
        lookout: &mut Lookout,
    ) -> Result<(), Ending> {
        // A client that has no answer yet is not about to send its next request.
        if connection.budget.is_idle() {
            let post = &connection.shared.lookout_post;
            let is_alone = || connection.shared.budget.is_idle();
            if let Some(read) = lookout.wait(post, is_alone, || self.glance()) {
                return read;
            }
        }
        let idle_timeout = connection.shared.limits.idle_timeout;
        loop {
            match timeout(idle_timeout, self.read()).await {
                Ok(read) => return read,
                Err(_) if connection.budget.is_idle() => return Err(Ending::Idle),
                Err(_) => {}
            }
        }
    }

    /// Reads what has arrived, if anything has, without asking the runtime: it hears of what
    /// arrives from the thread that waits for all sockets, which has to be woken for it.
    fn glance(&mut self) -> Option<Result<(), Ending>> {
        let socket: &TcpStream = self.stream.as_ref();
        let arrived = rustix::io::ioctl_fionread(socket).ok().filter(|&bytes| bytes > 0)?;
        let before = self.input.len();
        let most = usize::try_from(arrived).unwrap_or(usize::MAX).min(READ_BUFFER_BYTES);
        self.input.resize(before + most, 0);
        let read = rustix::net::recv(socket, &mut self.input[before..], RecvFlags::DONTWAIT);
        let (read, outcome) = match read {
            Ok((0, _)) => (0, Some(Err(Ending::Closed))),
            Ok((read, _)) => (read, Some(Ok(()))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => (0, None),
            Err(error) => (0, Some(Err(io::Error::from(error).into()))),
        };
        self.input.truncate(before + read);
        outcome
    }

    /// Reads what is there, into a buffer with room for the record at hand.
    async fn read(&mut self) -> Result<(), Ending> {
        let missing = self.records.missing_bytes(&self.input);
        if self.input.capacity() - self.input.len() < missing.max(record::MARK_BYTES) {
            self.input.reserve(missing.max(READ_BUFFER_BYTES));
            self.is_large |= missing > READ_BUFFER_BYTES;
        }
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(Ending::Closed),
            _ => Ok(()),
        }
    }
}
