//! Who is connected, and who makes room where all connections are taken.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::standing::Standing;

/// The connections that are open: as many as the server takes at most.
#[derive(Debug, Default)]
pub struct Peers {
    open: Mutex<BTreeMap<u64, Arc<Peer>>>,
    next: AtomicU64,
}

/// A connection.
#[derive(Debug)]
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// When it was opened.
    pub since: Instant,
    calls: AtomicU64,
    /// When the last call came, in milliseconds since it was opened.
    last_call: AtomicU64,
    /// How it has behaved.
    pub(super) standing: Standing,
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

    /// The time since its last call, or since it was opened.
    fn idle(&self) -> Duration {
        Duration::from_millis(self.age().saturating_sub(self.last_call.load(Ordering::Relaxed)))
    }

    /// Milliseconds since it was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Peers {
    /// The connections that are open, the first one first.
    pub fn open(&self) -> Vec<Arc<Peer>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn enter(self: &Arc<Self>, address: SocketAddr) -> Entered {
        let peer = Arc::new(Peer {
            address,
            since: Instant::now(),
            calls: AtomicU64::new(0),
            last_call: AtomicU64::new(0),
            standing: Standing::default(),
            unwanted: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(&peer));
        Entered { peers: Arc::clone(self), number, peer }
    }

    /// Tells one connection to end, if there is one that others may take the place of: the oldest
    /// of those that had no sound call answered, or else the one that is idle for longest, if
    /// that is at least `idle`. A client whose connection ends opens another for its next call.
    pub(super) fn make_room(&self, idle: Duration) {
        let open = self.lock();
        let stranger = open.values().find(|peer| !peer.standing.is_known());
        let chosen = stranger.or_else(|| {
            let longest = open.values().max_by_key(|peer| peer.idle());
            longest.filter(|peer| peer.idle() >= idle)
        });
        if let Some(peer) = chosen {
            peer.unwanted.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Peer>>> {
        // Its entries are whole whatever a panic interrupted.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the open connections; it goes with this.
pub(super) struct Entered {
    peers: Arc<Peers>,
    number: u64,
    pub peer: Arc<Peer>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.peers.lock().remove(&self.number);
    }
}
