//! The read half of a connection: turns received bytes into records, within the byte budgets.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout, timeout_at};

use super::busy_poll::BusyPoll;
use super::connection::{ConnectionEnd, ConnectionState};
use super::connection_budget::RequestPermit;
use super::limits::{FIRST_RECORD_BYTES, MIN_POOLED_BYTES, READ_BUFFER_BYTES};
use super::record_buffers::RecordBufferPool;
use crate::wire::record::{self, RecordReader};

/// Received bytes, and the reader that splits them into records.
pub(super) struct Incoming {
    stream: OwnedReadHalf,
    input: BytesMut,
    /// Whether `input` was allocated for a large record.
    is_large: bool,
    records: RecordReader,
}

/// Deadlines for the rest of a record.
#[derive(Default)]
struct Deadlines {
    /// Applies always.
    last: Option<Instant>,
    /// Applies while other requests wait for memory.
    crowded: Option<Instant>,
}

impl Incoming {
    pub(super) fn new(stream: OwnedReadHalf, record_bytes: usize) -> Self {
        let records = RecordReader::new(record_bytes);
        Self { stream, input: BytesMut::new(), is_large: false, records }
    }

    /// Shuts the connection down in both directions, so that writes to a stalled client fail at
    /// once.
    pub(super) fn hang_up(&self) {
        // An error means that the connection is already closed.
        let _gone = SockRef::from(self.stream.as_ref()).shutdown(Shutdown::Both);
    }

    /// Has the end of the connection send what is left, and not reset it.
    pub(super) fn close_in_order(&self) {
        // An error means that the connection is already closed.
        let _gone = SockRef::from(self.stream.as_ref()).set_linger(None);
    }

    /// Returns the next record with its byte permit.
    pub(super) async fn next(
        &mut self,
        connection: &ConnectionState,
        busy_poll: &mut BusyPoll,
    ) -> Result<(Bytes, RequestPermit), ConnectionEnd> {
        let limits = &connection.shared.limits;
        let overall = &connection.shared.budget;
        let mut room = None;
        let mut deadlines = Deadlines::default();
        loop {
            let record = self.records.next_record(&mut self.input)?;
            if let (None, Some(bytes)) = (&room, self.wanted_bytes(record.as_ref())) {
                let begun = Instant::now();
                let has_valid_call = connection.peer.reputation.has_valid_call();
                let share = &connection.share;
                let taken = share.take_request_bytes(overall, bytes, has_valid_call).await;
                // The client's deadline does not run while it waits for our permit.
                deadlines.last = deadlines.last.map(|at| at + begun.elapsed());
                let at = || Instant::now() + limits.pressure_timeout;
                deadlines.crowded = taken.is_common().then(at);
                room = Some(taken);
            }
            room = match (record, room) {
                (Some(record), Some(room)) => {
                    self.release_buffer(record.len(), &connection.shared.record_buffers);
                    return Ok((record, room));
                }
                (_, room) => room,
            };
            if !self.records.is_mid_record(&self.input) {
                self.read_first(connection, busy_poll).await?;
                continue;
            }
            let last =
                *deadlines.last.get_or_insert_with(|| Instant::now() + limits.record_timeout);
            let first = deadlines.crowded.map_or(last, |at| last.min(at));
            if room.is_some() {
                self.reuse_buffer(&connection.shared.record_buffers);
            }
            match timeout_at(first, self.read(room.is_some())).await {
                Ok(read) => read?,
                Err(_) if first == last || overall.lacks_request_bytes() => {
                    return Err(ConnectionEnd::RecordTimeout);
                }
                // No request waits for memory: the deadline is extended and checked again.
                Err(_) => deadlines.crowded = Some(Instant::now() + limits.pressure_timeout),
            }
        }
    }

    /// The bytes of the permit to take now: for a complete record, or for an incomplete one with at
    /// least [`FIRST_RECORD_BYTES`] received.
    fn wanted_bytes(&self, record: Option<&Bytes>) -> Option<usize> {
        match record {
            Some(record) => Some(record.len()),
            None if self.records.arrived_bytes(&self.input) < FIRST_RECORD_BYTES => None,
            None => self.records.reserved_bytes(),
        }
    }

    /// Gives up the buffer of a large record, and offers it for reuse. Otherwise even an empty rest
    /// of the buffer would keep the memory of the record, whose permit ends with its reply.
    fn release_buffer(&mut self, record_bytes: usize, record_buffers: &Arc<RecordBufferPool>) {
        if std::mem::take(&mut self.is_large) {
            let rest = BytesMut::from(&self.input[..]);
            let buffer = std::mem::replace(&mut self.input, rest);
            if record_bytes >= MIN_POOLED_BYTES {
                record_buffers.keep(buffer);
            }
        }
    }

    /// Moves the start of a large record into a reused buffer, if the pool has one large enough.
    fn reuse_buffer(&mut self, record_buffers: &RecordBufferPool) {
        let missing = self.records.missing_bytes(&self.input);
        if self.input.capacity() - self.input.len() < missing
            && let Some(mut buffer) = record_buffers.take(self.input.len() + missing)
        {
            buffer.extend_from_slice(&self.input);
            (self.input, self.is_large) = (buffer, true);
        }
    }

    /// Waits for the first bytes of a record, for at most the idle timeout.
    async fn read_first(
        &mut self,
        connection: &ConnectionState,
        busy_poll: &mut BusyPoll,
    ) -> Result<(), ConnectionEnd> {
        // A client that waits for a reply is unlikely to send its next request now.
        if connection.share.is_idle() {
            let post = &connection.shared.busy_poll_permit;
            let is_alone = || connection.shared.budget.is_idle();
            if let Some(read) = busy_poll.wait(post, is_alone, || self.glance()) {
                return read;
            }
        }
        let idle_timeout = connection.shared.limits.idle_timeout;
        loop {
            match timeout(idle_timeout, self.read(false)).await {
                Ok(read) => return read,
                Err(_) if connection.share.is_idle() => return Err(ConnectionEnd::Idle),
                Err(_) => {}
            }
        }
    }

    /// Reads received bytes with a non-blocking recv(2). Bypasses the runtime, whose readiness
    /// events need a wake-up of the thread that polls all sockets.
    fn glance(&mut self) -> Option<Result<(), ConnectionEnd>> {
        let socket: &TcpStream = self.stream.as_ref();
        let arrived = rustix::io::ioctl_fionread(socket).ok().filter(|&bytes| bytes > 0)?;
        let before = self.input.len();
        let most = usize::try_from(arrived).unwrap_or(usize::MAX).min(READ_BUFFER_BYTES);
        self.input.resize(before + most, 0);
        let read = rustix::net::recv(socket, &mut self.input[before..], RecvFlags::DONTWAIT);
        let (read, outcome) = match read {
            Ok((0, _)) => (0, Some(Err(ConnectionEnd::Closed))),
            Ok((read, _)) => (read, Some(Ok(()))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => (0, None),
            Err(error) => (0, Some(Err(io::Error::from(error).into()))),
        };
        self.input.truncate(before + read);
        outcome
    }

    /// Reads available bytes; reserves space for the rest of the current record only if it
    /// `has_room`.
    async fn read(&mut self, has_room: bool) -> Result<(), ConnectionEnd> {
        let missing = self.records.missing_bytes(&self.input);
        let wanted = if has_room { missing } else { missing.min(FIRST_RECORD_BYTES) };
        if self.input.capacity() - self.input.len() < wanted.max(record::MARK_BYTES) {
            self.input.reserve(wanted.max(READ_BUFFER_BYTES));
            self.is_large |= wanted > READ_BUFFER_BYTES;
        }
        // A reused buffer may be larger than the record; bytes of later records have no permit yet.
        let most = wanted.max(READ_BUFFER_BYTES);
        match self.stream.read_buf(&mut (&mut self.input).limit(most)).await? {
            0 => Err(ConnectionEnd::Closed),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::wire::record::MAX_RECORD_BYTES;

    #[tokio::test]
    async fn memory_that_is_used_again_takes_no_more_than_its_record() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut incoming = Incoming::new(stream.into_split().0, MAX_RECORD_BYTES);
        let record_buffers = Arc::new(RecordBufferPool::default());
        let mut large = BytesMut::zeroed(MAX_RECORD_BYTES);
        drop(large.split_to(MAX_RECORD_BYTES));
        record_buffers.keep(large);
        // Much shorter records, back to back.
        let record = [&record::mark(MIN_POOLED_BYTES)[..], &[2; MIN_POOLED_BYTES]].concat();
        let all = record.repeat(8);
        let sent = tokio::spawn(async move { client.write_all(&all).await.map(|()| client) });
        let mut records = 0;
        let mut again = 0;
        while records < 8 {
            if let Some(record) = incoming.records.next_record(&mut incoming.input).unwrap() {
                incoming.release_buffer(record.len(), &record_buffers);
                records += 1;
                continue;
            }
            incoming.reuse_buffer(&record_buffers);
            again += usize::from(incoming.input.capacity() > MAX_RECORD_BYTES / 2);
            incoming.read(true).await.unwrap();
            let most = MIN_POOLED_BYTES + 2 * READ_BUFFER_BYTES;
            assert!(incoming.input.len() <= most, "{} bytes", incoming.input.len());
        }
        assert!(again > 0, "it was not used again");
        sent.await.unwrap().unwrap();
    }
}
