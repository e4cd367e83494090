//! Who is connected, and who makes room where all connections are taken.

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
use super::presence::Presence;
use super::reputation::Reputation;

/// The connections that are open: as many as the server takes at most.
#[derive(Debug, Default)]
pub struct Peers {
    open: Mutex<OpenConnections>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    peers: BTreeMap<u64, Arc<Peer>>,
    /// Addresses that are connected, by what [`share_of`] makes of them.
    addresses: HashMap<IpAddr, ConnectedAddress>,
}

/// An address that is connected.
#[derive(Debug, Default)]
struct ConnectedAddress {
    connections: usize,
    usage: Arc<AddressUse>,
}

/// A connection.
#[derive(Debug)]
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// When it was opened.
    pub since: Instant,
    calls: AtomicU64,
    /// When the last call came, in microseconds since it was opened.
    last_call: AtomicU64,
    /// The tenant that its calls are about; 0 if that is not known.
    tenant: AtomicU64,
    /// What its address has of the room that all share.
    pub(super) usage: Arc<AddressUse>,
    /// Whether it is still read from.
    pub(super) presence: Arc<Presence>,
    /// How it has behaved.
    pub(super) reputation: Reputation,
    /// Told when others need its place.
    pub(super) unwanted: Notify,
}

impl Peer {
    /// Calls that it sent.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last_call.store(self.age(), Ordering::Relaxed);
    }

    /// Notes whom a call is for, as `tenant` says: of one call in so many, and of each until one
    /// has said so.
    pub(super) fn note_tenant(&self, tenant: impl FnOnce() -> Option<NonZeroU64>) {
        let is_due =
            self.calls().is_multiple_of(TENANT_CALLS) || self.tenant.load(Ordering::Relaxed) == 0;
        if is_due && let Some(tenant) = tenant() {
            self.tenant.store(tenant.get(), Ordering::Relaxed);
        }
    }

    /// What counts where one has to give way.
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

    /// The time since its last call, or since it was opened.
    fn idle(&self) -> Duration {
        Duration::from_micros(self.age().saturating_sub(self.last_call.load(Ordering::Relaxed)))
    }

    /// Microseconds since it was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Peers {
    /// The connections that are open, the first one first.
    pub fn open(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.values().cloned().collect()
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
            presence: Arc::new(Presence::new(address.port())),
            reputation: Reputation::default(),
            unwanted: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.peers.insert(number, Arc::clone(&peer));
        drop(open);
        PeerGuard { peers: Arc::clone(self), number, peer }
    }

    /// Closes the connection that [`choose`] selects for a client from `newcomer`: one that had no
    /// valid call answered for `grace`, or else one of the address that has most. A client whose
    /// connection ends opens another for its next call.
    pub(super) fn make_room(&self, newcomer: IpAddr, grace: Duration) {
        let mut open = self.lock();
        let all = open.peers.iter().map(|(&number, peer)| peer.as_candidate(number));
        let all: Vec<_> = all.collect();
        // It counts no more, so that another one is told next time.
        if let Some(number) = choose(&all, share_of(newcomer), grace)
            && let Some(peer) = open.leave(number)
        {
            peer.unwanted.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // Its entries are whole whatever a panic interrupted.
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

/// A place among the open connections; it goes with this.
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
