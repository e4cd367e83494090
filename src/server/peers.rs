//! Who is connected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
}

impl Peer {
    /// Calls that it sent.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Peers {
    /// The connections that are open, the first one first.
    pub fn open(&self) -> Vec<Arc<Peer>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn enter(self: &Arc<Self>, address: SocketAddr) -> Entered {
        let peer = Arc::new(Peer { address, since: Instant::now(), calls: AtomicU64::new(0) });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(&peer));
        Entered { peers: Arc::clone(self), number, peer }
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
