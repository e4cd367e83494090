//! The RPC server: TCP sockets, limits, and the path of a record to its program and back.
//!
//! The server knows RPC and the programs, but neither files nor sessions.
//!
//! - [`Listeners`]: bound sockets that nothing serves yet
//! - [`Server`]: accepts connections until it is told to stop
//! - [`RpcProgram`]: a program to serve: [`Nfs`](crate::nfs::Nfs),
//!   [`MountProgram`](crate::nfs::MountProgram), [`LockManager`], or the port mapper
//! - [`limits`]: every limit with its unit
//! - [`rpcbind`]: registers the ports with rpcbind, or answers in place of rpcbind

mod address_pool;
mod busy_poll;
mod call_names;
mod call_stats;
mod connection;
mod connection_budget;
mod dispatch;
mod eviction;
mod incoming;
mod inline_task;
pub mod limits;
mod listeners;
mod liveness;
mod lock_manager;
mod monitor;
mod outgoing;
mod peers;
mod program;
mod record_buffers;
mod registry;
mod reply_cache;
mod reputation;
pub mod rpcbind;
mod server_budget;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use dispatch::Dispatcher;
use limits::{Limits, WARNED_CLIENTS};
use monitor::ServerStats;
use record_buffers::RecordBufferPool;
use server_budget::ServerBudget;

use crate::growing_lru::growing_lru;
use crate::vfs::Caller;

pub use busy_poll::{BusyPoll, BusyPollPermit};
pub use call_names::CallNames;
pub use call_stats::ProcedureFigures;
pub use listeners::{BindError, Listeners};
pub use liveness::ConnectionLiveness;
pub use lock_manager::LockManager;
pub use monitor::{Monitor, PoolFigures, ServerFigures};
pub use peers::{Peer, Peers};
pub use program::{CallFuture, RpcProgram};
pub use registry::{Registry, Service};
pub use reply_cache::{CacheLookup, CallKey, ReplyCache, ReplySegments, ReplySlot, Retransmission};
pub use rpcbind::Portmapper;

/// Pause after accept(2) fails, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time that an evicted connection has to close before the next one is evicted.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// Options of a [`Server`].
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Clients may use any source port (exports(5) `insecure`). Otherwise Linux servers refuse
    /// calls from unprivileged ports; on other systems clients do not use privileged ports.
    pub insecure: bool,
    /// Maps uid and gid 0 of callers to the anonymous user (exports(5) `root_squash`).
    pub squash_root: bool,
    /// If the process ends without a stop, its connections are reset. Otherwise each keeps its two
    /// addresses for minutes where its last packets do not arrive, as the server's address has
    /// moved to another machine; when it comes back, a client cannot connect from the same port.
    pub resets: bool,
    /// Bounds on the resources that clients use.
    pub limits: Limits,
}

/// Serves RPC programs on TCP.
pub struct Server {
    listeners: Listeners,
    shared: Arc<ServerShared>,
}

/// State that all connections share.
struct ServerShared {
    dispatcher: Dispatcher,
    budget: Arc<ServerBudget>,
    stats: Arc<ServerStats>,
    record_buffers: Arc<RecordBufferPool>,
    busy_poll_permit: BusyPollPermit,
    peers: Arc<Peers>,
    limits: Limits,
    insecure: bool,
    squash_root: bool,
    resets: bool,
    warned: Mutex<LruCache<IpAddr, ()>>,
}

/// Becomes true when the server stops.
#[derive(Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Returns when the server stops or is dropped.
    async fn wait(mut self) {
        let _gone = self.0.wait_for(|stopped| *stopped).await;
    }
}

impl Server {
    /// Creates a server that serves `programs` on the sockets of `listeners`.
    pub fn new(
        listeners: Listeners,
        programs: Vec<Arc<dyn RpcProgram>>,
        options: ServerOptions,
    ) -> Self {
        let limits = options.limits;
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let shared = ServerShared {
            dispatcher: Dispatcher::new(programs, ReplyCache::new(&limits)),
            budget: Arc::new(ServerBudget::new(&limits)),
            stats: Arc::default(),
            record_buffers: Arc::default(),
            busy_poll_permit: BusyPollPermit::new(processors),
            peers: Arc::default(),
            limits,
            insecure: options.insecure,
            squash_root: options.squash_root,
            resets: options.resets,
            warned: Mutex::new(growing_lru(
                NonZeroUsize::new(WARNED_CLIENTS).unwrap_or(NonZeroUsize::MIN),
            )),
        };
        Self { listeners, shared: Arc::new(shared) }
    }

    /// The open connections; the list changes while the server runs.
    pub fn peers(&self) -> Arc<Peers> {
        Arc::clone(&self.shared.peers)
    }

    /// Reads the figures of this server.
    pub fn monitor(&self) -> Monitor {
        Monitor::of(&self.shared)
    }

    /// Serves until `stop` is ready. Then the server accepts and reads nothing more, and returns
    /// when all requests are answered, or after [`Limits::drain_timeout`].
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.run_until(stop, std::future::pending()).await;
    }

    /// Like [`Server::run`], but the drain also ends, with requests in flight, once `give_up` is
    /// ready.
    pub async fn run_until(
        self,
        stop: impl Future<Output = ()>,
        give_up: impl Future<Output = ()>,
    ) {
        let (sender, receiver) = watch::channel(false);
        let stopped = StopSignal(receiver);
        let places = Arc::new(Semaphore::new(self.shared.limits.connections));
        let mut accepting = Vec::new();
        for listener in self.listeners.into_sockets() {
            let (shared, stopped) = (Arc::clone(&self.shared), stopped.clone());
            accepting.push(tokio::spawn(accept(listener, shared, Arc::clone(&places), stopped)));
        }
        stop.await;
        sender.send_replace(true);
        for task in accepting {
            // The task ends at once; the join makes sure that its socket is closed.
            let _ended = task.await;
        }
        let drained = self.shared.budget.drain();
        let late = async {
            tokio::select! {
                () = tokio::time::sleep(self.shared.limits.drain_timeout) => {}
                () = give_up => {}
            }
        };
        let is_drained = tokio::select! {
            _ = drained => true,
            () = late => false,
        };
        if !is_drained {
            tracing::warn!("requests are still in flight; giving them up");
            self.shared.budget.close();
        }
    }
}

/// Accepts connections until the server stops.
async fn accept(
    listener: TcpListener,
    shared: Arc<ServerShared>,
    places: Arc<Semaphore>,
    stop: StopSignal,
) {
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(place) = take_place(&shared, &places, peer).await else { return };
                    let (shared, stop) = (Arc::clone(&shared), stop.clone());
                    tokio::spawn(serve_connection(stream, peer, shared, stop, place));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.clone().wait() => {}
    }
}

/// Waits for a connection permit. While none is free, evicts a connection every [`ROOM_PAUSE`].
async fn take_place(
    shared: &ServerShared,
    places: &Arc<Semaphore>,
    newcomer: SocketAddr,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    loop {
        shared.peers.make_room(newcomer.ip(), shared.limits.pressure_timeout);
        let place = tokio::time::timeout(ROOM_PAUSE, places.clone().acquire_owned());
        if let Ok(place) = place.await {
            return place.ok();
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<ServerShared>,
    stop: StopSignal,
    place: OwnedSemaphorePermit,
) {
    tracing::debug!(client = %peer, "connected");
    let stats = Arc::clone(&shared.stats);
    stats.opened.add(1);
    let ending = connection::serve(stream, peer, shared, stop).await;
    stats.ended(&ending);
    drop(place);
    tracing::debug!(client = %peer, reason = %ending, "connection ended");
}

impl ServerShared {
    /// Whether the server refuses calls from the port of `peer`. Always false outside Linux.
    fn refuses_port(&self, peer: SocketAddr) -> bool {
        cfg!(target_os = "linux") && refuses_port(peer, self.insecure)
    }

    /// Logs once for each client address that its port is refused.
    fn warn_of_port(&self, peer: SocketAddr) {
        // A panic cannot leave the cache inconsistent.
        let mut warned = self.warned.lock();
        if warned.put(peer.ip(), ()).is_none() {
            tracing::warn!(
                client = %peer,
                "refused: the client uses an unprivileged port (1024 or above); \
                 serve with --insecure to allow it"
            );
        }
    }
}

/// Whether the port of `peer` is refused because it is unprivileged (exports(5) `secure`). Does not
/// check that clients of this system use privileged ports.
pub fn refuses_port(peer: SocketAddr, insecure: bool) -> bool {
    !insecure && peer.port() >= Caller::FIRST_UNPRIVILEGED_PORT
}
