//! What a server counts besides calls, and the figures that others may read.

use std::sync::Arc;

use super::ServerShared;
use super::call_stats::{ProcedureFigures, RpcStats};
use super::connection::ConnectionEnd;
use super::peers::Peers;
use super::reply_cache::ReplyCache;
use super::server_budget::ServerBudget;
use crate::counters::Counter;

/// Counts since the server was made.
#[derive(Debug, Default)]
pub(super) struct ServerStats {
    /// Bytes of requests, without record marks.
    pub(super) received_bytes: Counter,
    /// Bytes of replies, without record marks.
    pub(super) sent_bytes: Counter,
    /// Connections that were accepted.
    pub(super) opened: Counter,
    ended: [Counter; ENDS.len()],
    refused: [Counter; RecordRefusal::ALL.len()],
    /// Pauses of connections that sent too many invalid calls.
    pub(super) paused: Counter,
}

/// Why connections ended, in the order of [`end_index`].
const ENDS: [&str; 9] = [
    "closed",
    "shutdown",
    "idle",
    "record_timeout",
    "reply_failed",
    "evicted",
    "garbage",
    "bad_record",
    "io",
];

/// Why a record leads to no call of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordRefusal {
    /// It is not RPC.
    Garbage,
    /// It is a reply.
    NotACall,
    /// Its version, program or credential is not accepted.
    Header,
    /// The client's port is unprivileged.
    Port,
}

impl RecordRefusal {
    const ALL: [Self; 4] = [Self::Garbage, Self::NotACall, Self::Header, Self::Port];

    fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::NotACall => "not_a_call",
            Self::Header => "header",
            Self::Port => "unprivileged_port",
        }
    }
}

fn end_index(end: &ConnectionEnd) -> usize {
    match end {
        ConnectionEnd::Closed => 0,
        ConnectionEnd::ShuttingDown => 1,
        ConnectionEnd::Idle => 2,
        ConnectionEnd::RecordTimeout => 3,
        ConnectionEnd::ReplyFailed => 4,
        ConnectionEnd::Evicted => 5,
        ConnectionEnd::Garbage => 6,
        ConnectionEnd::Record(_) => 7,
        ConnectionEnd::Io(_) => 8,
    }
}

impl ServerStats {
    pub(super) fn ended(&self, end: &ConnectionEnd) {
        self.ended[end_index(end)].add(1);
    }

    pub(super) fn refused(&self, refusal: RecordRefusal) {
        self.refused[refusal as usize].add(1);
    }
}

/// Reads the figures of a server, also after its end. Keeps no session open.
#[derive(Clone)]
pub struct Monitor {
    stats: Arc<ServerStats>,
    calls: Arc<RpcStats>,
    peers: Arc<Peers>,
    budget: Arc<ServerBudget>,
    cache: Arc<ReplyCache>,
    max_connections: usize,
}

/// The figures of a server at one moment. Counts are since its start.
#[derive(Debug, Clone)]
pub struct ServerFigures {
    /// The procedures that were called.
    pub calls: Vec<ProcedureFigures>,
    /// Retransmissions that were answered from the reply cache.
    pub retransmissions: u64,
    /// Bytes of requests.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
    /// Open connections.
    pub connections: usize,
    /// Their limit.
    pub max_connections: usize,
    /// Connections that were accepted.
    pub opened: u64,
    /// Connections that ended, by reason.
    pub ended: Vec<(&'static str, u64)>,
    /// Records that led to no call of a program, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// How often a request or a reply waited or was shortened, by reason.
    pub throttled: Vec<(&'static str, u64)>,
    /// Requests in flight.
    pub requests: usize,
    /// Their limit.
    pub max_requests: usize,
    /// Memory of large requests and replies.
    pub pools: Vec<PoolFigures>,
    /// Replies in the reply cache.
    pub cached_replies: usize,
    /// Their size in bytes.
    pub cached_reply_bytes: usize,
}

/// A pool of memory that connections share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Name of the pool.
    pub name: &'static str,
    /// Bytes in use.
    pub used: usize,
    /// Their limit.
    pub max: usize,
}

impl Monitor {
    pub(super) fn of(shared: &ServerShared) -> Self {
        Self {
            stats: Arc::clone(&shared.stats),
            calls: shared.dispatcher.stats(),
            peers: Arc::clone(&shared.peers),
            budget: Arc::clone(&shared.budget),
            cache: shared.dispatcher.cache(),
            max_connections: shared.limits.connections,
        }
    }

    /// The current figures.
    pub fn figures(&self) -> ServerFigures {
        let stats = &self.stats;
        let named = |names: &[&'static str], counters: &[Counter]| {
            names.iter().zip(counters).map(|(name, counter)| (*name, counter.value())).collect()
        };
        let (requests, max_requests) = self.budget.in_flight();
        let (cached_replies, cached_reply_bytes) = self.cache.size();
        let mut throttled = vec![("bad_calls", stats.paused.value())];
        throttled.extend(self.budget.waits());
        ServerFigures {
            calls: self.calls.figures(),
            retransmissions: self.calls.retransmissions.value(),
            received_bytes: stats.received_bytes.value(),
            sent_bytes: stats.sent_bytes.value(),
            connections: self.peers.count(),
            max_connections: self.max_connections,
            opened: stats.opened.value(),
            ended: named(&ENDS, &stats.ended),
            refused: named(&RecordRefusal::ALL.map(RecordRefusal::name), &stats.refused),
            throttled,
            requests,
            max_requests,
            pools: self.budget.pools(),
            cached_replies,
            cached_reply_bytes,
        }
    }
}
