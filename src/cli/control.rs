//! Makes a server known to other commands on this machine: its control socket, and its entry in the
//! registry of served sessions.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::control::{
    About, ConnectionCount, ControlPeer, ExportsUsage, Listener, Refusal, Registered, StopListener,
};
use crate::overlay::Overlay;
use crate::server::Peers;
use crate::workspace::accounts::Accounts;
use crate::workspace::tree_guards::TreeGuards;

/// The time that commands in progress get to end at a shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The control socket and the registry entry of a server. The server works without them too.
pub(super) struct Control {
    /// Dropping the sender stops the listener.
    stop: Option<watch::Sender<()>>,
    listening: Option<JoinHandle<()>>,
    connections: Option<ConnectionCount>,
    _registered: Option<Registered>,
}

impl Control {
    /// Starts to answer for a session, which only this process has open, and for the exports with
    /// these accounts and guards.
    pub(super) fn begin(
        session: &Path,
        base: Option<PathBuf>,
        overlay: &Arc<Overlay>,
        addresses: Vec<SocketAddr>,
        peers: Arc<Peers>,
        accounts: Option<Accounts>,
        guards: Option<TreeGuards>,
    ) -> Self {
        let (shown, session_file) = (accounts.clone(), session.to_owned());
        let guards = guards.map(Arc::new);
        let merge_guards = guards.clone();
        let about = About {
            addresses,
            base,
            since: Instant::now(),
            peers: Box::new(move || connected(&peers)),
            paths: Box::new(move || shown.as_ref().map(|shown| shown.paths_of(&session_file))),
            exports: Box::new(move || usage(accounts.as_ref())),
            check_restore: Box::new(move |to, paths| match guards.clone() {
                Some(guards) => Box::pin(async move { guards.check_restore(to, paths).await }),
                None => Box::pin(async { Ok(None) }),
            }),
            check_merge: Box::new(move |caller, seen, steps| match merge_guards.clone() {
                Some(guards) => {
                    let caller = caller.clone();
                    Box::pin(async move { guards.check_merge(&caller, seen, steps).await })
                }
                None => Box::pin(async { Ok(()) }),
            }),
        };
        let (stop, stopped) = StopListener::new();
        let bound = match Listener::bind(session) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!(
                    session = %session.display(),
                    %error,
                    "no control socket: commands cannot change the session while it is served"
                );
                None
            }
        };
        let connections = bound.as_ref().map(Listener::connections);
        let serve =
            |listener: Listener| tokio::spawn(listener.serve(Arc::clone(overlay), about, stopped));
        let listening = bound.map(serve);
        let registered = Registered::enter(session);
        if let Err(error) = &registered {
            tracing::debug!(%error, "`acetate sessions` will not show this server");
        }
        Self { stop: Some(stop), listening, connections, _registered: registered.ok() }
    }
}

impl Control {
    /// Whether a command is connected.
    pub(super) fn is_in_use(&self) -> bool {
        self.connections.as_ref().is_some_and(|connections| connections.get() > 0)
    }

    /// Stops accepting requests.
    pub(super) fn stop(&mut self) {
        self.stop = None;
    }

    /// Stops accepting requests, and waits for those in progress.
    pub(super) async fn end(mut self) {
        self.stop();
        let Some(listening) = self.listening.take() else { return };
        match tokio::time::timeout(END_TIMEOUT, listening).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "control socket"),
            Err(_) => tracing::warn!("a command is still running; it is aborted"),
        }
    }
}

fn connected(peers: &Peers) -> Vec<ControlPeer> {
    let seen = |peer: &Arc<crate::server::Peer>| ControlPeer {
        address: peer.address,
        connected: peer.since.elapsed().as_secs(),
        calls: peer.calls(),
    };
    peers.open().iter().map(seen).collect()
}

/// The usage of all exports; empty if there are none.
fn usage(accounts: Option<&Accounts>) -> Result<ExportsUsage, Refusal> {
    let usage = accounts.map(|accounts| accounts.usage());
    usage
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|error| Refusal::new(error.to_string()))
}
