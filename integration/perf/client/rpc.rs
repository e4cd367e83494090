//! ONC RPC over one TCP connection (RFC 5531), blocking, with as many calls in flight as wanted.
//!
//! Knows nothing of the crate that is measured: what it would get wrong in both directions
//! would otherwise go unseen.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What goes wrong in a measurement, in words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of whatever talks to a server.
pub type Result<T> = std::result::Result<T, Error>;

/// No answer for so long is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are asked of the socket at once; most replies fit several times.
const READ_BYTES: usize = 64 * 1024;

/// No reply to what is asked here is longer, in bytes.
const MAX_REPLY_BYTES: usize = 2 << 20;

const LAST_FRAGMENT: u32 = 1 << 31;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_SYS: u32 = 1;

/// A call's record while it is put together.
pub struct Call {
    bytes: Vec<u8>,
}

impl Call {
    /// Appends an unsigned integer.
    pub fn u32(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends an unsigned hyper integer.
    pub fn u64(mut self, value: u64) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends a counted opaque or string.
    pub fn opaque(mut self, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(value);
        let padded = self.bytes.len() + value.len().wrapping_neg() % 4;
        self.bytes.resize(padded, 0);
        self
    }
}

/// What is left to read of a reply.
pub struct Reply<'a> {
    rest: &'a [u8],
}

impl<'a> Reply<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if self.rest.len() < count {
            return Err("the reply ends too early".into());
        }
        let (front, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(front)
    }

    /// Reads an unsigned integer.
    pub fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads an unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Reads a counted opaque or string.
    pub fn opaque(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        self.take(length.wrapping_neg() % 4)?;
        Ok(bytes)
    }

    /// Reads a boolean.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} where a boolean should be").into()),
        }
    }

    /// Checks that all was read.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err("the reply is too long".into()) }
    }
}

/// A program of a server, as one user sees it.
pub struct Connection {
    socket: TcpStream,
    program: u32,
    version: u32,
    next_xid: u32,
    /// Calls that no answer has come to, in order: xid, and what the caller wants to know again.
    waiting: VecDeque<(u32, u64)>,
    call: Vec<u8>,
    /// Bytes from the socket: those before `start` are used up, those from `end` on are not yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Connection {
    /// Connects; `index` makes the transaction numbers of connections differ.
    pub fn open(address: SocketAddr, program: u32, version: u32, index: u32) -> Result<Self> {
        Self::over(TcpStream::connect(address)?, program, version, index)
    }

    /// The same over a connection that was made.
    pub fn over(socket: TcpStream, program: u32, version: u32, index: u32) -> Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        // Another one for each connection: the same call with the same xid is the same call to a
        // server, be it the next one after a kill.
        let random = RandomState::new().hash_one(index);
        let next_xid = (random >> 32) as u32;
        Ok(Self {
            socket,
            program,
            version,
            next_xid,
            waiting: VecDeque::new(),
            call: Vec::new(),
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
        })
    }

    /// Sends a call of `procedure` with what `args` appends, and does not wait for the answer.
    /// The answer will come with `tag`.
    pub fn send(
        &mut self,
        procedure: u32,
        tag: u64,
        args: impl FnOnce(Call) -> Call,
    ) -> Result<()> {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        let mut bytes = std::mem::take(&mut self.call);
        bytes.clear();
        let header = Call { bytes }.u32(0).u32(xid).u32(CALL).u32(RPC_VERSION);
        let header = header.u32(self.program).u32(self.version).u32(procedure);
        // AUTH_SYS: stamp, machine, uid 0, gid 0, no further groups; then no verifier.
        let header = header.u32(AUTH_SYS).u32(24).u32(0).opaque(b"perf").u32(0).u32(0).u32(0);
        self.call = args(header.u32(0).u32(0)).bytes;
        let length = self.call.len() as u32 - 4;
        self.call[..4].copy_from_slice(&(LAST_FRAGMENT | length).to_be_bytes());
        self.socket.write_all(&self.call)?;
        self.waiting.push_back((xid, tag));
        Ok(())
    }

    /// Calls that no answer has come to.
    pub fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    /// Waits for the answer to any of the calls in flight, and gives its tag and its results to
    /// `read`.
    pub fn receive<T>(&mut self, read: impl FnOnce(u64, &mut Reply<'_>) -> Result<T>) -> Result<T> {
        let length = self.record()?;
        let mut reply = Reply { rest: &self.buffer[self.start..self.start + length] };
        let xid = reply.u32()?;
        // A server may answer in another order.
        let at = self.waiting.iter().position(|&(waiting, _)| waiting == xid);
        let found = at.and_then(|at| self.waiting.remove(at));
        let (_, tag) = found.ok_or("an answer to nothing that was asked")?;
        if reply.u32()? != REPLY || reply.u32()? != 0 {
            return Err("the call was denied".into());
        }
        reply.u32()?;
        reply.opaque()?;
        let status = reply.u32()?;
        if status != 0 {
            return Err(format!("the call failed with RPC status {status}").into());
        }
        let value = read(tag, &mut reply).and_then(|value| reply.finish().map(|()| value));
        self.start += length;
        value
    }

    /// Calls `procedure` and waits for its answer; nothing else may be in flight.
    pub fn call<T>(
        &mut self,
        procedure: u32,
        args: impl FnOnce(Call) -> Call,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.send(procedure, 0, args)?;
        self.receive(|_, reply| read(reply))
    }

    /// Makes the next record stand at `start`, in one piece, and returns its length in bytes.
    fn record(&mut self) -> Result<usize> {
        let mut length = 0;
        loop {
            self.fill(length + 4)?;
            let at = self.start + length;
            let mark = self.buffer[at..at + 4].try_into()?;
            let mark = u32::from_be_bytes(mark);
            let fragment = (mark & !LAST_FRAGMENT) as usize;
            if length + fragment > MAX_REPLY_BYTES {
                return Err("the reply is longer than any should be".into());
            }
            // The mark goes away, so that fragments stand side by side.
            self.buffer.copy_within(self.start..at, self.start + 4);
            self.start += 4;
            length += fragment;
            self.fill(length)?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(length);
            }
        }
    }

    /// Reads until there are `wanted` bytes from `start` on.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        if self.start + wanted > self.buffer.len() || self.start == self.end {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted + READ_BYTES, 0);
        }
        while self.end - self.start < wanted {
            match self.socket.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    let closed = "the server closed the connection";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, closed).into());
                }
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
