//! The open connections, and the eviction of one when all connection permits are taken.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::address_pool::AddressUse;
use super::eviction::{EvictionCandidate, choose, share_of};
use super::limits::TENANT_CALLS;
use super::liveness::ConnectionLiveness;
use super::reputation::Reputation;

/// The open connections; their number is bounded by [`Limits::connections`](super::limits::Limits).
#[derive(Debug, Default)]
pub struct Peers {
    open: Mutex<OpenConnections>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    peers: BTreeMap<u64, Arc<Peer>>,
    /// Connected addresses, keyed by [`share_of`].
    addresses: HashMap<IpAddr, ConnectedAddress>,
}

/// A client address with open connections.
#[derive(Debug, Default)]
struct ConnectedAddress {
    connections: usize,
    usage: Arc<AddressUse>,
}

/// An open connection.
#[derive(Debug)]
pub struct Peer {
    /// The client's address and port.
    pub address: SocketAddr,
    /// When the connection was opened.
    pub since: Instant,
    calls: AtomicU64,
    /// Time of the last call, in microseconds since the connection was opened.
    last_call: AtomicU64,
    /// The tenant of its calls; 0 if unknown.
    tenant: AtomicU64,
    /// The shared budget that its address uses.
    pub(super) usage: Arc<AddressUse>,
    /// Whether it is still read from.
    pub(super) liveness: Arc<ConnectionLiveness>,
    /// How the connection has behaved.
    pub(super) reputation: Reputation,
    /// Notified when the connection is evicted.
    pub(super) unwanted: Notify,
}

impl Peer {
    /// The number of calls received.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Records a call that arrived at `now`.
    pub(super) fn count_call(&self, now: Instant) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last_call.store(self.age(now), Ordering::Relaxed);
    }

    /// Records the tenant that `tenant` returns. Evaluates it for every call until a tenant is
    /// known, then for one call in [`TENANT_CALLS`].
    pub(super) fn note_tenant(&self, tenant: impl FnOnce() -> Option<NonZeroU64>) {
        let is_due =
            self.calls().is_multiple_of(TENANT_CALLS) || self.tenant.load(Ordering::Relaxed) == 0;
        if is_due && let Some(tenant) = tenant() {
            self.tenant.store(tenant.get(), Ordering::Relaxed);
        }
    }

    /// The properties that decide about eviction.
    fn as_candidate(&self, number: u64) -> EvictionCandidate {
        EvictionCandidate {
            number,
            share: share_of(self.address.ip()),
            tenant: NonZeroU64::new(self.tenant.load(Ordering::Relaxed)),
            has_valid_call: self.reputation.has_valid_call(),
            age: self.since.elapsed(),
            idle: self.idle(),
        }
    }

    /// The time since the last call, or since the connection was opened.
    fn idle(&self) -> Duration {
        Duration::from_micros(
            self.age(Instant::now()).saturating_sub(self.last_call.load(Ordering::Relaxed)),
        )
    }

    /// Microseconds from the opening of the connection to `now`.
    fn age(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.since);
        u64::try_from(age.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Peers {
    /// The open connections, oldest first.
    pub fn open(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.values().cloned().collect()
    }

    /// Whether the machine with this address has an open connection. Addresses of version 6 count
    /// as one machine where they share resources.
    pub fn is_connected(&self, address: IpAddr) -> bool {
        self.lock().addresses.contains_key(&share_of(address))
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.lock().peers.len()
    }

    pub(super) fn enter(self: &Arc<Self>, address: SocketAddr) -> PeerGuard {
        let mut open = self.lock();
        let at = open.addresses.entry(share_of(address.ip())).or_default();
        at.connections += 1;
        let peer = Arc::new(Peer {
            address,
            since: Instant::now(),
            calls: AtomicU64::new(0),
            last_call: AtomicU64::new(0),
            tenant: AtomicU64::new(0),
            usage: Arc::clone(&at.usage),
            liveness: Arc::new(ConnectionLiveness::new(address.port())),
            reputation: Reputation::default(),
            unwanted: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.peers.insert(number, Arc::clone(&peer));
        drop(open);
        PeerGuard { peers: Arc::clone(self), number, peer }
    }

    /// Evicts the connection that [`choose`] selects for a client from `newcomer`. A client whose
    /// connection is closed reconnects for its next call.
    pub(super) fn make_room(&self, newcomer: IpAddr, grace: Duration) {
        let mut open = self.lock();
        let all = open.peers.iter().map(|(&number, peer)| peer.as_candidate(number));
        let all: Vec<_> = all.collect();
        // Removed at once, so that the next eviction selects another connection.
        if let Some(number) = choose(&all, share_of(newcomer), grace)
            && let Some(peer) = open.leave(number)
        {
            peer.unwanted.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // A panic cannot leave the maps inconsistent.
        self.open.lock()
    }
}

impl OpenConnections {
    fn leave(&mut self, number: u64) -> Option<Arc<Peer>> {
        let peer = self.peers.remove(&number)?;
        let share = share_of(peer.address.ip());
        if let Some(at) = self.addresses.get_mut(&share) {
            at.connections -= 1;
            if at.connections == 0 {
                self.addresses.remove(&share);
            }
        }
        Some(peer)
    }
}

/// An entry among the open connections; removed when dropped.
pub(super) struct PeerGuard {
    peers: Arc<Peers>,
    number: u64,
    pub peer: Arc<Peer>,
}

impl Drop for PeerGuard {
    fn drop(&mut self) {
        self.peers.lock().leave(self.number);
    }
}
