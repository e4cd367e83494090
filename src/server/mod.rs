//! The server at the door: sockets, limits, and the way of a record to its program and back.
//!
//! The only place, with `worker`, that knows tokio. It knows RPC and programs, but neither
//! files nor sessions.
//!
//! - [`Listeners`]: bound sockets, before anything is served from them
//! - [`Server`]: accepts connections until it is told to stop
//! - [`RpcProgram`]: what is served: [`Nfs`](crate::nfs::Nfs),
//!   [`MountProgram`](crate::nfs::MountProgram), [`LockManager`], or the port mapper
//! - [`limits`]: every limit with its unit
//! - [`rpcbind`]: how clients find the port

mod address_pool;
mod connection;
mod connection_budget;
mod dispatch;
mod eviction;
mod incoming;
mod inline_task;
pub mod limits;
mod listeners;
mod lock_manager;
mod lookout;
mod outgoing;
mod peers;
mod presence;
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
use record_buffers::RecordBufferPool;
use server_budget::ServerBudget;

use crate::vfs::Caller;

pub use listeners::{BindError, Listeners};
pub use lock_manager::LockManager;
pub use lookout::{Lookout, LookoutPost};
pub use peers::{Peer, Peers};
pub use presence::Presence;
pub use program::{CallFuture, RpcProgram};
pub use registry::{Registry, Service};
pub use reply_cache::{CallKey, Entered, ReplyCache, ReplySegments, ReplySlot, Retransmission};
pub use rpcbind::Portmapper;

/// How long accepting pauses after it failed (for want of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection that was told to make room may take, before another one is told.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// How a [`Server`] is set up.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Clients may use any source port (exports(5) `insecure`). Without it, calls from
    /// unprivileged ports are refused on Linux; elsewhere clients do not use privileged ones.
    pub insecure: bool,
    /// Root of clients is squashed (exports(5) `root_squash`).
    pub squash_root: bool,
    /// What clients can take at most.
    pub limits: Limits,
}

/// Serves RPC programs on TCP.
pub struct Server {
    listeners: Listeners,
    shared: Arc<ServerShared>,
}

/// What all connections share.
struct ServerShared {
    dispatcher: Dispatcher,
    budget: ServerBudget,
    record_buffers: Arc<RecordBufferPool>,
    lookout_post: LookoutPost,
    peers: Arc<Peers>,
    limits: Limits,
    insecure: bool,
    squash_root: bool,
    warned: Mutex<LruCache<IpAddr, ()>>,
}

/// Turns true when the server stops.
#[derive(Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Returns when the server stops (or is gone).
    async fn wait(mut self) {
        let _gone = self.0.wait_for(|stopped| *stopped).await;
    }
}

impl Server {
    /// Sets up a server of `programs` at the sockets of `listeners`.
    pub fn new(
        listeners: Listeners,
        programs: Vec<Arc<dyn RpcProgram>>,
        options: ServerOptions,
    ) -> Self {
        let limits = options.limits;
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let shared = ServerShared {
            dispatcher: Dispatcher::new(programs, ReplyCache::new(&limits)),
            budget: ServerBudget::new(&limits),
            record_buffers: Arc::default(),
            lookout_post: LookoutPost::new(processors),
            peers: Arc::default(),
            limits,
            insecure: options.insecure,
            squash_root: options.squash_root,
            warned: Mutex::new(LruCache::new(
                NonZeroUsize::new(WARNED_CLIENTS).unwrap_or(NonZeroUsize::MIN),
            )),
        };
        Self { listeners, shared: Arc::new(shared) }
    }

    /// Who is connected, while it runs.
    pub fn peers(&self) -> Arc<Peers> {
        Arc::clone(&self.shared.peers)
    }

    /// Serves until `stop` is ready; then accepts and reads nothing more, and returns when all
    /// requests are answered, or after [`Limits::drain_timeout`].
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.run_until(stop, std::future::pending()).await;
    }

    /// As [`Server::run`]; once it stops, it also gives requests up as soon as `give_up` is ready.
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
            // Joined, so that the sockets are closed; it ends at once.
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

/// Waits for a place for one more connection; where all are taken, another one gives way.
async fn take_place(
    shared: &ServerShared,
    places: &Arc<Semaphore>,
    newcomer: SocketAddr,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    loop {
        shared.peers.make_room(newcomer.ip(), shared.limits.crowded_timeout);
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
    let ending = connection::serve(stream, peer, shared, stop).await;
    drop(place);
    tracing::debug!(client = %peer, reason = %ending, "connection ended");
}

impl ServerShared {
    /// Whether calls from the port of `peer` are refused.
    fn refuses_port(&self, peer: SocketAddr) -> bool {
        cfg!(target_os = "linux") && refuses_port(peer, self.insecure)
    }

    /// Logs, once per client, that it was refused for its port.
    fn warn_of_port(&self, peer: SocketAddr) {
        // A cache of what was logged stays right whatever happened while it was locked.
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

/// Whether calls from the port of `peer` are refused where ports mean anything (exports(5)
/// `secure`).
pub fn refuses_port(peer: SocketAddr, insecure: bool) -> bool {
    !insecure && peer.port() >= Caller::FIRST_UNPRIVILEGED_PORT
}
