//! The reading half of a connection: from what arrives to records, in the room that they take.

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

use super::connection::{ConnectionEnd, ConnectionState};
use super::connection_budget::RequestPermit;
use super::limits::{FIRST_RECORD_BYTES, MIN_SPARE_BYTES, READ_BUFFER_BYTES};
use super::lookout::Lookout;
use super::record_buffers::RecordBufferPool;
use crate::wire::record::{self, RecordReader};

/// Bytes that arrived, and the record that they are becoming.
pub(super) struct Incoming {
    stream: OwnedReadHalf,
    input: BytesMut,
    /// Whether `input` was made for a large record.
    is_large: bool,
    records: RecordReader,
}

/// Until when a record has to be whole.
#[derive(Default)]
struct Deadlines {
    /// In any case.
    last: Option<Instant>,
    /// If others lack the room that it takes.
    crowded: Option<Instant>,
}

impl Incoming {
    pub(super) fn new(stream: OwnedReadHalf, record_bytes: usize) -> Self {
        let records = RecordReader::new(record_bytes);
        Self { stream, input: BytesMut::new(), is_large: false, records }
    }

    /// Ends the connection both ways: a reply that the client does not take fails at once.
    pub(super) fn hang_up(&self) {
        // Where it is gone already, nothing waits for it.
        let _gone = SockRef::from(self.stream.as_ref()).shutdown(Shutdown::Both);
    }

    /// Returns the next record, with the room that its bytes take.
    pub(super) async fn next(
        &mut self,
        connection: &ConnectionState,
        lookout: &mut Lookout,
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
                // The time that we made the client wait is not its own.
                deadlines.last = deadlines.last.map(|at| at + begun.elapsed());
                let at = || Instant::now() + limits.crowded_timeout;
                deadlines.crowded = taken.is_common().then(at);
                room = Some(taken);
            }
            room = match (record, room) {
                (Some(record), Some(room)) => {
                    self.let_go(record.len(), &connection.shared.record_buffers);
                    return Ok((record, room));
                }
                (_, room) => room,
            };
            if !self.records.is_mid_record(&self.input) {
                self.read_first(connection, lookout).await?;
                continue;
            }
            let last =
                *deadlines.last.get_or_insert_with(|| Instant::now() + limits.record_timeout);
            let first = deadlines.crowded.map_or(last, |at| last.min(at));
            if room.is_some() {
                self.make_room(&connection.shared.record_buffers);
            }
            match timeout_at(first, self.read(room.is_some())).await {
                Ok(read) => read?,
                Err(_) if first == last || overall.lacks_request_bytes() => {
                    return Err(ConnectionEnd::RecordTimeout);
                }
                // Nobody lacks room: it may go on, to be looked at again.
                Err(_) => deadlines.crowded = Some(Instant::now() + limits.crowded_timeout),
            }
        }
    }

    /// The bytes of the room that is taken now, if so: for a whole record, and for one of which
    /// more has come than is read without.
    fn wanted_bytes(&self, record: Option<&Bytes>) -> Option<usize> {
        match record {
            Some(record) => Some(record.len()),
            None if self.records.arrived_bytes(&self.input) < FIRST_RECORD_BYTES => None,
            None => self.records.reserved_bytes(),
        }
    }

    /// Lets go of the memory of a large record, which has no room any more once that is answered:
    /// what is left of the buffer, be it nothing, would keep all of it.
    fn let_go(&mut self, record_bytes: usize, record_buffers: &Arc<RecordBufferPool>) {
        if std::mem::take(&mut self.is_large) {
            let rest = BytesMut::from(&self.input[..]);
            let buffer = std::mem::replace(&mut self.input, rest);
            if record_bytes >= MIN_SPARE_BYTES {
                record_buffers.keep(buffer);
            }
        }
    }

    /// Makes room for the rest of a large record in memory that is there, if there is some.
    fn make_room(&mut self, record_buffers: &RecordBufferPool) {
        let missing = self.records.missing_bytes(&self.input);
        if self.input.capacity() - self.input.len() < missing
            && let Some(mut buffer) = record_buffers.take(self.input.len() + missing)
        {
            buffer.extend_from_slice(&self.input);
            (self.input, self.is_large) = (buffer, true);
        }
    }

    /// Waits for the first bytes of a record, as long as a connection may be idle.
    async fn read_first(
        &mut self,
        connection: &ConnectionState,
        lookout: &mut Lookout,
    ) -> Result<(), ConnectionEnd> {
        // A client that has no answer yet is not about to send its next request.
        if connection.share.is_idle() {
            let post = &connection.shared.lookout_post;
            let is_alone = || connection.shared.budget.is_idle();
            if let Some(read) = lookout.wait(post, is_alone, || self.glance()) {
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

    /// Reads what has arrived, if anything has, without asking the runtime: it hears of what
    /// arrives from the thread that waits for all sockets, which has to be woken for it.
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

    /// Reads what is there, into a buffer with room for the record at hand, if it `has_room`.
    async fn read(&mut self, has_room: bool) -> Result<(), ConnectionEnd> {
        let missing = self.records.missing_bytes(&self.input);
        let wanted = if has_room { missing } else { missing.min(FIRST_RECORD_BYTES) };
        if self.input.capacity() - self.input.len() < wanted.max(record::MARK_BYTES) {
            self.input.reserve(wanted.max(READ_BUFFER_BYTES));
            self.is_large |= wanted > READ_BUFFER_BYTES;
        }
        // Memory that is used again may have room for more than the record: what comes behind it
        // has no room of its own.
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
        // Records that are much shorter, one behind the other, without waiting.
        let record = [&record::mark(MIN_SPARE_BYTES)[..], &[2; MIN_SPARE_BYTES]].concat();
        let all = record.repeat(8);
        let sent = tokio::spawn(async move { client.write_all(&all).await.map(|()| client) });
        let mut records = 0;
        let mut again = 0;
        while records < 8 {
            if let Some(record) = incoming.records.next_record(&mut incoming.input).unwrap() {
                incoming.let_go(record.len(), &record_buffers);
                records += 1;
                continue;
            }
            incoming.make_room(&record_buffers);
            again += usize::from(incoming.input.capacity() > MAX_RECORD_BYTES / 2);
            incoming.read(true).await.unwrap();
            let most = MIN_SPARE_BYTES + 2 * READ_BUFFER_BYTES;
            assert!(incoming.input.len() <= most, "{} bytes", incoming.input.len());
        }
        assert!(again > 0, "it was not used again");
        sent.await.unwrap().unwrap();
    }
}
