//! A client's connection, blocking.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::answers;
use super::calls::{Call, MOUNT};
use crate::choices::Choices;

/// No answer for so long is a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest reply, in bytes.
const MAX_REPLY_BYTES: usize = 2 << 20;

pub struct Connection {
    stream: TcpStream,
    xid: u32,
    /// Transaction numbers of damaged calls whose answers have not come. Replies come in any order
    /// (RFC 5531 section 9), so theirs may be behind those of later calls.
    owed: Vec<u32>,
}

pub enum Answer {
    Reply(Vec<u8>),
    Closed,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Closed without TIME_WAIT: the ports would not last for thousands of runs.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        Self { stream, xid: 0, owed: Vec::new() }
    }

    /// A new transaction number; none that damage has made of another one.
    pub fn next_xid(&mut self) -> u32 {
        loop {
            self.xid += 1;
            if !self.owed.contains(&self.xid) {
                return self.xid;
            }
        }
    }

    /// Sends a call and waits for its answer.
    pub fn ask(&mut self, call: &Call) -> Answer {
        let xid = self.next_xid();
        let record = call.record(xid);
        if self.send(&record, record.len()).is_err() {
            return Answer::Closed;
        }
        self.answer_to(xid)
    }

    /// Waits for the answer to `xid`; those before it are to damaged calls, one to each.
    fn answer_to(&mut self, xid: u32) -> Answer {
        loop {
            let Answer::Reply(reply) = self.receive() else { return Answer::Closed };
            let answered = answers::envelope(&reply).0;
            if answered == xid {
                return Answer::Reply(reply);
            }
            let at = self.owed.iter().position(|&owed| owed == answered);
            self.owed.swap_remove(at.unwrap_or_else(|| panic!("nobody asked {answered}")));
        }
    }

    /// Sends a record that may be none, in fragments, and a sound one behind it; whether that was
    /// answered.
    pub fn send_damaged(&mut self, record: &[u8], choices: &mut Choices<'_>) -> bool {
        let piece = match choices.byte() {
            0..0x80 => record.len(),
            piece => usize::from(piece - 0x7f),
        };
        if let Some((&xid, _)) = record.split_first_chunk() {
            self.owed.push(u32::from_be_bytes(xid));
        }
        if self.send(record, piece).is_err() {
            return false;
        }
        let null = Call { program: MOUNT, version: 3, procedure: 0, args: Vec::new() };
        matches!(self.ask(&null), Answer::Reply(_))
    }

    /// Sends bytes that are no record, and reads whatever comes until the server hangs up.
    pub fn garbage(mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_ok() && self.stream.shutdown(Shutdown::Write).is_ok() {
            while let Answer::Reply(reply) = self.receive() {
                answers::envelope(&reply);
            }
        }
    }

    /// Sends a record in fragments of `piece` bytes.
    fn send(&mut self, record: &[u8], piece: usize) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(record.len() + 4);
        let mut rest = record;
        loop {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            let last = u32::from(later.is_empty()) << 31;
            bytes.extend((now.len() as u32 | last).to_be_bytes());
            bytes.extend(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> Answer {
        let mut mark = [0; 4];
        if self.read(&mut mark).is_none() {
            return Answer::Closed;
        }
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !(1 << 31)) as usize;
        assert!(mark >> 31 == 1 && length <= MAX_REPLY_BYTES, "{mark:x}");
        let mut reply = vec![0; length];
        match self.read(&mut reply) {
            Some(()) => Answer::Reply(reply),
            None => Answer::Closed,
        }
    }

    /// Fills `buffer`; `None` once the connection is closed.
    fn read(&mut self, buffer: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(buffer) {
            Ok(()) => Some(()),
            Err(error) if is_timeout(&error) => panic!("no answer in {PATIENCE:?}"),
            Err(_) => None,
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
