//! Calls that only this client makes, beside those of the benchmark's client.

use std::io;

use super::nfs::{
    Client, GETATTR, LISTING_BYTES, READDIRPLUS, Refused, SETATTR, Stability, Written, expect_ok,
    post_op, wcc, written,
};
use super::rpc::{Call, Error, Result};

/// NFS3ERR_STALE.
pub const STALE: u32 = 70;

/// Bytes of one READ.
const READ_BYTES: u32 = 1 << 20;

/// In `fattr3`, the bytes between the mode and the size, and those after the size.
const BEFORE_SIZE: usize = 12;
const AFTER_SIZE: usize = 56;

/// The `nfsstat3` that a call was refused with; `None` for any other failure.
pub fn status(error: &Error) -> Option<u32> {
    error.downcast_ref::<Refused>().map(|refused| refused.status)
}

/// Whether there was no answer, because the server is gone; not whether it only kept silent.
pub fn is_gone(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
    })
}

impl Client {
    /// GETATTR: the mode, and the size in bytes.
    pub fn mode_and_size(&mut self, object: &[u8]) -> Result<(u32, u64)> {
        self.rpc.call(
            GETATTR,
            |call| call.opaque(object),
            |reply| {
                expect_ok(reply, "GETATTR")?;
                reply.u32()?;
                let mode = reply.u32()?;
                reply.take(BEFORE_SIZE)?;
                let size = reply.u64()?;
                reply.take(AFTER_SIZE)?;
                Ok((mode, size))
            },
        )
    }

    /// SETATTR of the size.
    pub fn resize(&mut self, object: &[u8], bytes: u64) -> Result<()> {
        // No mode, uid, gid; the size; no times, no guard.
        let args = |call: Call| {
            call.opaque(object).u32(0).u32(0).u32(0).u32(1).u64(bytes).u32(0).u32(0).u32(0)
        };
        self.rpc.call(SETATTR, args, |reply| {
            expect_ok(reply, "SETATTR")?;
            wcc(reply)
        })
    }

    /// Receives the answer to any of the WRITEs that were sent (offset, bytes, stability), and
    /// says to which: its offset.
    pub fn receive_any_write(
        &mut self,
        sent: &[(u64, usize, Stability)],
    ) -> Result<(u64, Written)> {
        self.rpc.receive(|offset, reply| {
            let found = sent.iter().find(|(sent, _, _)| *sent == offset);
            let (_, count, stability) = found.ok_or("an answer to no write")?;
            Ok((offset, written(reply, *count, *stability)?))
        })
    }

    /// A file's mode, and its whole content.
    pub fn mode_and_content(&mut self, file: &[u8]) -> Result<(u32, Vec<u8>)> {
        let (mode, size) = self.mode_and_size(file)?;
        let mut content = Vec::with_capacity(size as usize);
        while (content.len() as u64) < size {
            let count = (size - content.len() as u64).min(READ_BYTES.into()) as u32;
            self.send_read(file, content.len() as u64, count)?;
            self.receive_read(count as usize, |_, data| {
                content.extend_from_slice(data);
                Ok(())
            })?;
        }
        Ok((mode, content))
    }

    /// The names in a directory, in order, without `.` and `..`.
    pub fn names(&mut self, dir: &[u8]) -> Result<Vec<String>> {
        let (mut names, mut cookie, mut eof) = (Vec::new(), 0, false);
        while !eof {
            let args = |call: Call| {
                call.opaque(dir).u64(cookie).u64(0).u32(LISTING_BYTES).u32(LISTING_BYTES)
            };
            (cookie, eof) = self.rpc.call(READDIRPLUS, args, |reply| {
                expect_ok(reply, "READDIRPLUS")?;
                post_op(reply)?;
                reply.u64()?;
                let mut last = cookie;
                while reply.bool()? {
                    reply.u64()?;
                    let name = String::from_utf8(reply.opaque()?.to_vec())?;
                    last = reply.u64()?;
                    post_op(reply)?;
                    if reply.bool()? {
                        reply.opaque()?;
                    }
                    if name != "." && name != ".." {
                        names.push(name);
                    }
                }
                Ok((last, reply.bool()?))
            })?;
        }
        names.sort();
        Ok(names)
    }
}
