//! Every limit of the server, with its unit. Nothing a client sends takes more than this.

use std::time::Duration;

use crate::wire::record::{MAX_HEADER_BYTES, MAX_RECORD_BYTES};

/// Connections at the same time; for a further one, the address with most connections gives one
/// up, and there the export with most.
pub const MAX_CONNECTIONS: usize = 1024;
/// Requests in flight on one connection; then it is not read from.
pub const MAX_CONNECTION_REQUESTS: usize = 128;
/// Requests in flight on all connections together, besides the first of each connection: clients
/// that take no replies cannot keep others from being served. While several client addresses want
/// some, each may have as much as it leaves free, as of the bytes below.
pub const MAX_REQUESTS: usize = 2048;
/// Bytes of a request that is counted, but whose bytes are not: anything but a WRITE or a path.
pub const SMALL_REQUEST_BYTES: usize = 4 << 10;
/// Bytes of a record that may have come before it takes room: what a record merely claims takes
/// none, and its buffer is no larger than others.
pub const FIRST_RECORD_BYTES: usize = READ_BUFFER_BYTES / 2;
/// Bytes of larger requests in flight in each connection's reserve: a WRITE of 32 KiB waits for no
/// other connection.
pub const OWN_REQUEST_BYTES: usize = MAX_HEADER_BYTES + (32 << 10);
/// Bytes of other larger requests in flight on one connection.
pub const MAX_CONNECTION_REQUEST_BYTES: usize = 16 * MAX_RECORD_BYTES;
/// Bytes of other larger requests in flight on all connections together.
pub const MAX_REQUEST_BYTES: usize = 24 * MAX_RECORD_BYTES;
/// The same on all connections without a valid call so far: records that are begun and never
/// completed do not keep other clients from writing.
pub const MAX_UNVALIDATED_REQUEST_BYTES: usize = 4 * MAX_RECORD_BYTES;
/// Bytes of replies with data, made or being made, in each connection's reserve. Where there is no
/// more, READ and listings return less than was asked for, and clients ask for the rest: no
/// client waits for replies to others.
pub const OWN_REPLY_BYTES: usize = SMALL_REPLY_BYTES + (32 << 10);
/// Bytes of other replies with data, made or being made, on one connection.
pub const MAX_CONNECTION_REPLY_BYTES: usize = 8 * MAX_RECORD_BYTES;
/// Bytes of other replies with data, made or being made, on all connections together.
pub const MAX_REPLY_BYTES: usize = 24 * MAX_RECORD_BYTES;
/// The part of it for connections that are new, or made a reply wait: replies that are not read
/// leave the rest to clients that read theirs.
pub const MAX_UNPROVEN_REPLY_BYTES: usize = 8 * MAX_RECORD_BYTES;
/// Bytes of replies that a connection reads, without making one wait for [`CROWDED_TIMEOUT`],
/// before it counts as one that reads: more than the kernel buffers for a client that reads
/// nothing.
pub const PROVING_BYTES: usize = 4 << 20;
/// Bytes of replies to an unproven connection that the kernel buffers before it can send them
/// (`TCP_NOTSENT_LOWAT` on Linux).
pub const UNSENT_BYTES: u32 = 64 << 10;
/// Bytes of a reply without data; it is counted with its request, but its bytes are not.
pub const SMALL_REPLY_BYTES: usize = 1 << 10;
/// Buffers of large requests that are used again: as many as may be in flight of the largest.
pub const MAX_SPARES: usize = MAX_REQUEST_BYTES / MAX_RECORD_BYTES;
/// The smallest of them, in bytes: of a smaller one, the allocator takes care.
pub const MIN_SPARE_BYTES: usize = 128 << 10;
/// How often it is looked at whether any was used since; if not, none of them is kept.
pub const SPARE_AGE: Duration = Duration::from_secs(1);
/// Bytes by which the buffer of a connection grows.
pub const READ_BUFFER_BYTES: usize = 16 << 10;
/// For this long after a reply, a connection is polled for the next request before its task goes
/// to sleep: one connection at a time.
pub const LOOKOUT: Duration = Duration::from_micros(60);
/// A connection without a request for this long is closed (knfsd: 6 minutes).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// A record has to be whole this long after its first byte, the server's own waiting aside.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// A client has to take a reply within this time.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// While others lack room, a record that takes some of it has to be whole, and a reply taken,
/// within this time. While others need its place, a connection has to have a valid call answered
/// within this time.
pub const CROWDED_TIMEOUT: Duration = Duration::from_secs(2);
/// After an address requests shared room, other addresses may hold only as much as they leave free,
/// for this long (dynamic thresholds, decision 0043).
pub const CONTENTION: Duration = Duration::from_secs(2);
/// One call in this many is decoded to find the connection's tenant.
pub const TENANT_CALLS: u64 = 64;
/// Invalid calls of one connection (no such procedure, arguments that cannot be decoded) until its
/// requests are read more slowly. Each valid call makes up for one.
pub const FREE_BAD_CALLS: u32 = 32;
/// Then so much time passes after each of them.
pub const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// A LOCK that has to wait is not answered for this long; most locks are held for less.
///
/// A client's process can only be killed in this time, not interrupted, and the server's end
/// waits for it. Linux sends the call again after 10 seconds.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);
/// On shutdown, requests in flight have this long to finish.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the reply cache keeps a reply (knfsd: 2 minutes).
pub const REPLY_CACHE_AGE: Duration = Duration::from_secs(120);
/// Replies in the reply cache.
pub const REPLY_CACHE_ENTRIES: usize = 8192;
/// Bytes of replies in the reply cache.
pub const REPLY_CACHE_BYTES: usize = 4 << 20;
/// Bytes of a call's arguments that the reply cache hashes by SipHash; the rest, which is data of
/// a WRITE or a link's target, goes in by its CRC-32. The longest call without data is RENAME with
/// 656 bytes.
pub const STRONG_CHECKSUM_ARGS_BYTES: usize = 1 << 10;
/// Equal calls over different connections of one address, whose replies are kept apart; further
/// ones are carried out, and their replies are not kept.
pub const MAX_EQUAL_CALLS: u8 = 8;
/// A call that equals one over another open connection of the same address waits this long for
/// the end of that connection, which makes it a retransmission; then it is another program's.
pub const EQUAL_CALL_WAIT: Duration = Duration::from_millis(500);
/// Clients that the server remembers having warned.
pub const WARNED_CLIENTS: usize = 256;
/// Registrations of others that our own port mapper takes.
pub const MAX_REGISTRATIONS: usize = 256;
/// Bytes of a record or a datagram to our own port mapper.
pub const MAX_DATAGRAM_BYTES: usize = 8 << 10;
/// Bytes of a datagram that our own port mapper sends to other machines: whoever sends questions
/// in another's name has no more sent there than a few times what it sent.
pub const MAX_DATAGRAM_REPLY_BYTES: usize = 256;

/// The limits that a caller can set; [`Limits::default`] has the constants of this module.
#[derive(Debug, Clone)]
pub struct Limits {
    /// See [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// See [`MAX_CONNECTION_REQUESTS`].
    pub connection_requests: usize,
    /// See [`MAX_REQUESTS`].
    pub requests: usize,
    /// See [`MAX_RECORD_BYTES`].
    pub record_bytes: usize,
    /// See [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// See [`RECORD_TIMEOUT`].
    pub record_timeout: Duration,
    /// See [`REPLY_TIMEOUT`].
    pub reply_timeout: Duration,
    /// See [`CROWDED_TIMEOUT`].
    pub crowded_timeout: Duration,
    /// See [`REFUSAL_PAUSE`].
    pub refusal_pause: Duration,
    /// See [`DRAIN_TIMEOUT`].
    pub drain_timeout: Duration,
    /// See [`REPLY_CACHE_ENTRIES`].
    pub reply_cache_entries: usize,
    /// See [`REPLY_CACHE_BYTES`].
    pub reply_cache_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: MAX_CONNECTIONS,
            connection_requests: MAX_CONNECTION_REQUESTS,
            requests: MAX_REQUESTS,
            record_bytes: MAX_RECORD_BYTES,
            idle_timeout: IDLE_TIMEOUT,
            record_timeout: RECORD_TIMEOUT,
            reply_timeout: REPLY_TIMEOUT,
            crowded_timeout: CROWDED_TIMEOUT,
            refusal_pause: REFUSAL_PAUSE,
            drain_timeout: DRAIN_TIMEOUT,
            reply_cache_entries: REPLY_CACHE_ENTRIES,
            reply_cache_bytes: REPLY_CACHE_BYTES,
        }
    }
}
