//! NFSv3 and MOUNT calls (RFC 1813), each checked: status, lengths, what was promised.

use std::net::SocketAddr;

use super::rpc::{Call, Connection, Reply, Result};

const NFS_PROGRAM: u32 = 100_003;
const MOUNT_PROGRAM: u32 = 100_005;
const VERSION: u32 = 3;

const NULL: u32 = 0;
pub(crate) const GETATTR: u32 = 1;
pub(crate) const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
pub(crate) const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

const MNT: u32 = 1;

const NOENT: u32 = 2;
const REGULAR: u32 = 1;
const DIRECTORY: u32 = 2;
const FATTR_BYTES: usize = 84;
const WCC_ATTR_BYTES: usize = 24;

/// `dircount` and `maxcount` of READDIRPLUS, in bytes: what a Linux client asks for.
pub(crate) const LISTING_BYTES: u32 = 128 << 10;

/// A file handle.
pub type Handle = Vec<u8>;

/// `stable_how` (RFC 1813 §3.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Stability {
    /// Until COMMIT the machine may lose it.
    Unstable = 0,
    /// Data and attributes are synced.
    FileSync = 2,
}

/// What WRITE answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Whether a COMMIT has to follow.
    pub needs_commit: bool,
    /// The write verifier.
    pub verifier: u64,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub struct Page {
    /// Entries in it, with attributes and handles.
    pub entries: u64,
    /// Entries whose names are `.` and `..`.
    pub dots: u64,
    /// Where the next page begins.
    pub cookie: u64,
    /// The cookie verifier.
    pub verifier: u64,
    /// Whether this page is the last.
    pub eof: bool,
}

/// Asks MOUNT for the handle of the export `path`.
pub fn mount(address: SocketAddr, path: &str) -> Result<Handle> {
    mount_over(&mut mount_connection(address)?, path)
}

/// A connection to MOUNT.
pub fn mount_connection(address: SocketAddr) -> Result<Connection> {
    mount_connection_over(std::net::TcpStream::connect(address)?)
}

/// The same over a connection that was made.
pub fn mount_connection_over(socket: std::net::TcpStream) -> Result<Connection> {
    Connection::over(socket, MOUNT_PROGRAM, VERSION, 0)
}

/// The same as [`mount`] over a connection to MOUNT.
pub fn mount_over(connection: &mut Connection, path: &str) -> Result<Handle> {
    let args = |call: Call| call.opaque(path.as_bytes());
    connection.call(MNT, args, |reply| {
        expect_ok(reply, "MNT")?;
        let handle = reply.opaque()?.to_vec();
        let flavors = reply.u32()? as usize;
        reply.take(4 * flavors)?;
        Ok(handle)
    })
}

/// A call that was answered with an error.
#[derive(Debug)]
pub struct Refused {
    /// What was called.
    pub procedure: &'static str,
    /// `nfsstat3`.
    pub status: u32,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: nfsstat3 {}", self.procedure, self.status)
    }
}

impl std::error::Error for Refused {}

/// A connection to an NFS server.
pub struct Client {
    pub(crate) rpc: Connection,
}

impl Client {
    /// Connects.
    pub fn open(address: SocketAddr, index: u32) -> Result<Self> {
        Ok(Self { rpc: Connection::open(address, NFS_PROGRAM, VERSION, index)? })
    }

    /// The same over a connection that was made.
    #[allow(dead_code)]
    pub fn over(socket: std::net::TcpStream, index: u32) -> Result<Self> {
        Ok(Self { rpc: Connection::over(socket, NFS_PROGRAM, VERSION, index)? })
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.rpc.in_flight()
    }

    /// NULL.
    pub fn null(&mut self) -> Result<()> {
        self.rpc.call(NULL, |call| call, |_| Ok(()))
    }

    /// GETATTR of a regular file of `size` bytes.
    pub fn getattr(&mut self, object: &[u8], size: u64) -> Result<()> {
        self.rpc.call(
            GETATTR,
            |call| call.opaque(object),
            |reply| {
                expect_ok(reply, "GETATTR")?;
                let (kind, found) = attributes(reply)?;
                check(kind == REGULAR && found == size, "GETATTR: not the file's attributes")
            },
        )
    }

    /// Sends a GETATTR.
    pub fn send_getattr(&mut self, object: &[u8]) -> Result<()> {
        self.rpc.send(GETATTR, 0, |call| call.opaque(object))
    }

    /// Receives the answer to any GETATTR; returns the size.
    pub fn receive_getattr(&mut self) -> Result<u64> {
        self.rpc.receive(|_, reply| {
            expect_ok(reply, "GETATTR")?;
            Ok(attributes(reply)?.1)
        })
    }

    /// SETATTR of the mode.
    pub fn chmod(&mut self, object: &[u8], mode: u32) -> Result<()> {
        self.rpc.call(
            SETATTR,
            |call| mode_only(call.opaque(object), mode).u32(0),
            |reply| {
                expect_ok(reply, "SETATTR")?;
                wcc(reply)
            },
        )
    }

    /// LOOKUP of a name that is there; returns its handle and size.
    pub fn lookup(&mut self, dir: &[u8], name: &str) -> Result<(Handle, u64)> {
        self.rpc.call(
            LOOKUP,
            |call| call.opaque(dir).opaque(name.as_bytes()),
            |reply| {
                expect_ok(reply, "LOOKUP")?;
                let handle = reply.opaque()?.to_vec();
                let attributes = post_op(reply)?;
                post_op(reply)?;
                Ok((handle, attributes.map_or(0, |(_, size)| size)))
            },
        )
    }

    /// LOOKUP of a name that is not there.
    pub fn lookup_absent(&mut self, dir: &[u8], name: &str) -> Result<()> {
        self.rpc.call(
            LOOKUP,
            |call| call.opaque(dir).opaque(name.as_bytes()),
            |reply| {
                check(reply.u32()? == NOENT, "LOOKUP: an absent name is not NFS3ERR_NOENT")?;
                post_op(reply).map(drop)
            },
        )
    }

    /// Sends a READ.
    pub fn send_read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<()> {
        self.rpc.send(READ, offset, |call| call.opaque(file).u64(offset).u32(count))
    }

    /// Receives the answer to any READ, which must have brought `count` bytes; `look` gets their
    /// offset.
    pub fn receive_read(
        &mut self,
        count: usize,
        look: impl FnOnce(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (offset, brought) = self.receive_any_read(look)?;
        if brought == count {
            return Ok(());
        }
        Err(format!("READ: {brought} bytes at {offset}, not the {count} asked for").into())
    }

    /// Receives the answer to any READ of a piece of `file`, or of the end of one: pieces have
    /// `piece` bytes and lie side by side. Where it brought less, asks for the rest, as kernels do.
    /// Returns how many bytes it brought.
    pub fn receive_piece(
        &mut self,
        file: &[u8],
        piece: usize,
        look: impl FnOnce(u64, &[u8]) -> Result<()>,
    ) -> Result<usize> {
        let (offset, brought) = self.receive_any_read(look)?;
        check(brought > 0, "READ: nothing, and not the end")?;
        let left = piece.checked_sub(offset as usize % piece + brought);
        let left = left.ok_or("READ: more bytes than asked for")?;
        if left > 0 {
            self.send_read(file, offset + brought as u64, left as u32)?;
        }
        Ok(brought)
    }

    /// Receives the answer to any READ; returns its offset, and how many bytes it brought.
    fn receive_any_read(
        &mut self,
        look: impl FnOnce(u64, &[u8]) -> Result<()>,
    ) -> Result<(u64, usize)> {
        self.rpc.receive(|offset, reply| {
            expect_ok(reply, "READ")?;
            post_op(reply)?;
            let counted = reply.u32()? as usize;
            reply.bool()?;
            let data = reply.opaque()?;
            check(counted == data.len(), "READ: another count than bytes")?;
            look(offset, data)?;
            Ok((offset, counted))
        })
    }

    /// Sends a WRITE.
    pub fn send_write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<()> {
        let count = data.len() as u32;
        let args = |call: Call| {
            call.opaque(file).u64(offset).u32(count).u32(stability as u32).opaque(data)
        };
        self.rpc.send(WRITE, offset, args)
    }

    /// Receives the answer to any WRITE, which must have taken `count` bytes and promise
    /// `stability` at least.
    pub fn receive_write(&mut self, count: usize, stability: Stability) -> Result<Written> {
        self.rpc.receive(|_, reply| written(reply, count, stability))
    }

    /// WRITE, waiting for its answer.
    pub fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<Written> {
        self.send_write(file, offset, data, stability)?;
        self.receive_write(data.len(), stability)
    }

    /// COMMIT of the whole file after `written`, as a client does it: only where the server
    /// has not synced by itself; the verifier must be the same.
    pub fn commit(&mut self, file: &[u8], written: Written) -> Result<()> {
        if !written.needs_commit {
            return Ok(());
        }
        self.rpc.call(
            COMMIT,
            |call| call.opaque(file).u64(0).u32(0),
            |reply| {
                expect_ok(reply, "COMMIT")?;
                wcc(reply)?;
                check(reply.u64()? == written.verifier, "COMMIT: another write verifier")
            },
        )
    }

    /// CREATE (UNCHECKED) of a regular file.
    pub fn create(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        let args = |call: Call| mode_only(call.opaque(dir).opaque(name.as_bytes()).u32(0), 0o644);
        self.rpc.call(CREATE, args, |reply| created(reply, "CREATE", REGULAR))
    }

    /// MKDIR.
    pub fn mkdir(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        let args = |call: Call| mode_only(call.opaque(dir).opaque(name.as_bytes()), 0o755);
        self.rpc.call(MKDIR, args, |reply| created(reply, "MKDIR", DIRECTORY))
    }

    /// REMOVE.
    pub fn remove(&mut self, dir: &[u8], name: &str) -> Result<()> {
        self.rpc.call(
            REMOVE,
            |call| call.opaque(dir).opaque(name.as_bytes()),
            |reply| {
                expect_ok(reply, "REMOVE")?;
                wcc(reply)
            },
        )
    }

    /// RMDIR.
    pub fn rmdir(&mut self, dir: &[u8], name: &str) -> Result<()> {
        let args = |call: Call| call.opaque(dir).opaque(name.as_bytes());
        self.rpc.call(RMDIR, args, |reply| {
            expect_ok(reply, "RMDIR")?;
            wcc(reply)
        })
    }

    /// RENAME within a directory.
    pub fn rename(&mut self, dir: &[u8], from: &str, to: &str) -> Result<()> {
        self.rpc.call(
            RENAME,
            |call| call.opaque(dir).opaque(from.as_bytes()).opaque(dir).opaque(to.as_bytes()),
            |reply| {
                expect_ok(reply, "RENAME")?;
                wcc(reply)?;
                wcc(reply)
            },
        )
    }

    /// READDIRPLUS of one page. Each entry but `..` must come with attributes and a handle.
    pub fn list(&mut self, dir: &[u8], cookie: u64, verifier: u64) -> Result<Page> {
        self.list_each(dir, cookie, verifier, |_, _, _| ())
    }

    /// The same; `each` gets name, handle and whether it is a directory, of all but `.` and `..`.
    pub fn list_each(
        &mut self,
        dir: &[u8],
        cookie: u64,
        verifier: u64,
        mut each: impl FnMut(&[u8], &[u8], bool),
    ) -> Result<Page> {
        let args = |call: Call| {
            call.opaque(dir).u64(cookie).u64(verifier).u32(LISTING_BYTES).u32(LISTING_BYTES)
        };
        self.rpc.call(READDIRPLUS, args, |reply| {
            expect_ok(reply, "READDIRPLUS")?;
            post_op(reply)?;
            let mut page = Page { verifier: reply.u64()?, ..Page::default() };
            while reply.bool()? {
                reply.u64()?;
                let name = reply.opaque()?;
                let is_dots = matches!(name, b"." | b"..");
                page.cookie = reply.u64()?;
                let attributes = post_op(reply)?;
                let handle = if reply.bool()? { reply.opaque()? } else { &[] };
                match attributes {
                    _ if is_dots => {}
                    Some((kind, _)) if !handle.is_empty() => each(name, handle, kind == DIRECTORY),
                    _ => return Err("READDIRPLUS: an entry without attributes or handle".into()),
                }
                page.entries += 1;
                page.dots += u64::from(is_dots);
            }
            page.eof = reply.bool()?;
            Ok(page)
        })
    }
}

pub(crate) fn check(is_so: bool, complaint: &str) -> Result<()> {
    if is_so { Ok(()) } else { Err(complaint.into()) }
}

pub(crate) fn expect_ok(reply: &mut Reply<'_>, procedure: &'static str) -> Result<()> {
    match reply.u32()? {
        0 => Ok(()),
        status => Err(Refused { procedure, status }.into()),
    }
}

/// `sattr3` with nothing but a mode.
fn mode_only(call: Call, mode: u32) -> Call {
    call.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
}

/// `fattr3`: type and size.
pub(crate) fn attributes(reply: &mut Reply<'_>) -> Result<(u32, u64)> {
    let kind = reply.u32()?;
    reply.take(16)?;
    let size = reply.u64()?;
    reply.take(FATTR_BYTES - 28)?;
    Ok((kind, size))
}

/// `post_op_attr`.
pub(crate) fn post_op(reply: &mut Reply<'_>) -> Result<Option<(u32, u64)>> {
    if reply.bool()? { attributes(reply).map(Some) } else { Ok(None) }
}

/// `wcc_data`.
pub(crate) fn wcc(reply: &mut Reply<'_>) -> Result<()> {
    if reply.bool()? {
        reply.take(WCC_ATTR_BYTES)?;
    }
    post_op(reply).map(drop)
}

/// What WRITE answers.
pub(crate) fn written(
    reply: &mut Reply<'_>,
    count: usize,
    stability: Stability,
) -> Result<Written> {
    expect_ok(reply, "WRITE")?;
    wcc(reply)?;
    check(reply.u32()? as usize == count, "WRITE: a part only")?;
    let committed = reply.u32()?;
    check(committed >= stability as u32, "WRITE: less stable than asked for")?;
    Ok(Written { needs_commit: committed == 0, verifier: reply.u64()? })
}

/// What CREATE and MKDIR answer; a client needs the handle.
fn created(reply: &mut Reply<'_>, procedure: &'static str, kind: u32) -> Result<Handle> {
    expect_ok(reply, procedure)?;
    if !reply.bool()? {
        return Err(format!("{procedure}: no handle").into());
    }
    let handle = reply.opaque()?.to_vec();
    if let Some((found, _)) = post_op(reply)? {
        check(found == kind, "the new object is of another type")?;
    }
    wcc(reply)?;
    Ok(handle)
}
