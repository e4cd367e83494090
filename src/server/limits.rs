//! Every limit of the server, with its unit. No client can use more than these.

use std::time::Duration;

use crate::wire::record::{MAX_HEADER_BYTES, MAX_RECORD_BYTES};

/// Open connections; for one more, the server evicts a connection of the address with the most, and
/// there of the tenant with the most.
pub const MAX_CONNECTIONS: usize = 1024;
/// Requests in flight on one connection; at the limit, the server stops reading from it.
pub const MAX_CONNECTION_REQUESTS: usize = 128;
/// Requests in flight on all connections together, in addition to the first of each connection:
/// clients that do not read replies cannot starve others. While several addresses compete, each may
/// hold at most as much as is left free; the byte limits below work in this way too.
pub const MAX_REQUESTS: usize = 2048;
/// Requests up to this size, in bytes, need no byte permit: everything but WRITEs and long paths.
pub const SMALL_REQUEST_BYTES: usize = 4 << 10;
/// Bytes of a record that must have arrived before the record needs a byte permit. A claimed length
/// alone takes no permit and enlarges no buffer.
pub const FIRST_RECORD_BYTES: usize = READ_BUFFER_BYTES / 2;
/// Bytes of larger requests in each connection's reserve: a 32 KiB WRITE waits for no other
/// connection.
pub const OWN_REQUEST_BYTES: usize = MAX_HEADER_BYTES + (32 << 10);
/// Bytes of larger requests in flight on one connection, beyond its reserve.
pub const MAX_CONNECTION_REQUEST_BYTES: usize = 16 * MAX_RECORD_BYTES;
/// Bytes of larger requests in flight on all connections together, beyond the reserves.
pub const MAX_REQUEST_BYTES: usize = 24 * MAX_RECORD_BYTES;
/// Like [`MAX_REQUEST_BYTES`], in a separate pool for connections without a valid call so far:
/// incomplete records cannot keep other clients from writing.
pub const MAX_UNVALIDATED_REQUEST_BYTES: usize = 4 * MAX_RECORD_BYTES;
/// Bytes of replies with data in each connection's reserve. If only the reserve is free, READ and
/// listings return less than requested, and clients request the rest: no client waits for the
/// replies of others.
pub const OWN_REPLY_BYTES: usize = SMALL_REPLY_BYTES + (32 << 10);
/// Bytes of replies with data on one connection, beyond its reserve.
pub const MAX_CONNECTION_REPLY_BYTES: usize = 8 * MAX_RECORD_BYTES;
/// Bytes of replies with data on all connections together, beyond the reserves.
pub const MAX_REPLY_BYTES: usize = 24 * MAX_RECORD_BYTES;
/// Part of [`MAX_REPLY_BYTES`] for unproven connections (new, or slow to read a reply). Replies
/// that are not read leave the rest to clients that read theirs.
pub const MAX_UNPROVEN_REPLY_BYTES: usize = 8 * MAX_RECORD_BYTES;
/// Bytes of replies that prove that a connection reads its replies, if none of them waits for
/// [`CROWDED_TIMEOUT`]. More than the kernel buffers for a client that reads nothing.
pub const PROVING_BYTES: usize = 4 << 20;
/// Bytes of unsent replies that the kernel buffers for an unproven connection (`TCP_NOTSENT_LOWAT`
/// on Linux).
pub const UNSENT_BYTES: u32 = 64 << 10;
/// Replies up to this size, in bytes, need no byte permit.
pub const SMALL_REPLY_BYTES: usize = 1 << 10;
/// Buffers of large requests kept for reuse: one for each record of the largest size in flight.
pub const MAX_POOLED_BUFFERS: usize = MAX_REQUEST_BYTES / MAX_RECORD_BYTES;
/// Smallest buffer kept for reuse, in bytes. The allocator handles smaller ones well.
pub const MIN_POOLED_BYTES: usize = 128 << 10;
/// Interval of the check for unused buffers; an interval without any use frees all.
pub const POOL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes by which a connection's read buffer grows.
pub const READ_BUFFER_BYTES: usize = 16 << 10;
/// Time of busy-polling for the next request after a reply; at most one connection polls at once.
pub const BUSY_POLL_TIME: Duration = Duration::from_micros(60);
/// A connection without a request for this time is closed (knfsd: 6 minutes).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// Time from a record's first byte to its last, without waiting for the server's own permits.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a client must read a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// While others wait for memory, time in which a record with shared bytes must be complete and a
/// reply read. While others wait for a connection, time in which a connection must have a valid
/// call answered.
pub const CROWDED_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after requests of two addresses for the same pool in which each address may hold at most as
/// much as is left free (dynamic thresholds, docs/decisions/0043).
pub const CONTENTION: Duration = Duration::from_secs(2);
/// One call in this many is decoded to find the connection's tenant.
pub const TENANT_CALLS: u64 = 64;
/// Invalid calls of one connection (unknown procedure, undecodable arguments) before its requests
/// are read more slowly. Each valid call offsets one.
pub const FREE_BAD_CALLS: u32 = 32;
/// Pause before each further request of a connection that is throttled for invalid calls.
pub const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// Time that a LOCK waits for a conflicting lock before the reply; most locks are held for less.
///
/// The client's process can be killed but not interrupted in this time, and a shutdown waits for
/// the call. Linux retransmits after 10 seconds.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Time that requests in flight have to finish on shutdown.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the reply cache keeps a reply (knfsd: 2 minutes).
pub const REPLY_CACHE_AGE: Duration = Duration::from_secs(120);
/// Replies in the reply cache.
pub const REPLY_CACHE_ENTRIES: usize = 8192;
/// Bytes of replies in the reply cache.
pub const REPLY_CACHE_BYTES: usize = 4 << 20;
/// Bytes of a call's arguments that the reply cache hashes by SipHash; the rest, data of a WRITE or
/// a link's target, is added by its CRC-32. The longest call without data is RENAME, with 656
/// bytes.
pub const STRONG_CHECKSUM_ARGS_BYTES: usize = 1 << 10;
/// Equal calls over different connections of one address whose replies are cached separately;
/// further ones are executed without caching their replies.
pub const MAX_EQUAL_CALLS: u8 = 8;
/// Time that a call waits if it equals one of another open connection of its address: if that
/// connection ends, the call is a retransmission. Otherwise the call belongs to another program.
pub const EQUAL_CALL_WAIT: Duration = Duration::from_millis(500);
/// Client addresses that the server remembers having warned.
pub const WARNED_CLIENTS: usize = 256;
/// Registrations of other programs that the built-in port mapper accepts.
pub const MAX_REGISTRATIONS: usize = 256;
/// Bytes of a record or a datagram to the built-in port mapper.
pub const MAX_DATAGRAM_BYTES: usize = 8 << 10;
/// Bytes of a datagram that the built-in port mapper sends to another machine: bounds UDP
/// amplification. A spoofed query triggers a reply of at most a few times its size.
pub const MAX_DATAGRAM_REPLY_BYTES: usize = 256;

/// Limits that the user of a [`Server`](super::Server) can set. [`Limits::default`] has the
/// constants of this module.
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
    pub pressure_timeout: Duration,
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
            pressure_timeout: CROWDED_TIMEOUT,
            refusal_pause: REFUSAL_PAUSE,
            drain_timeout: DRAIN_TIMEOUT,
            reply_cache_entries: REPLY_CACHE_ENTRIES,
            reply_cache_bytes: REPLY_CACHE_BYTES,
        }
    }
}
