//! The control sockets of the sessions of an exports file: each exists while its session is open.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::cli::control::Control;
use crate::export::Exports;
use crate::server::Peers;
use crate::workspace::accounts::Accounts;
use crate::workspace::exports::{ServedExports, SessionObserver};
use crate::workspace::layers::SessionLayers;
use crate::workspace::tree_guards::TreeGuards;

/// The control sockets of the open sessions.
pub(super) struct Controls {
    of: Mutex<HashMap<PathBuf, Control>>,
    addresses: Vec<SocketAddr>,
    peers: Arc<Peers>,
    accounts: Accounts,
    exports: Exports,
    runtime: Handle,
}

impl Controls {
    /// No sockets yet; the server has these addresses and connections.
    pub(super) fn new(
        served: &ServedExports,
        addresses: &[SocketAddr],
        peers: Arc<Peers>,
        runtime: Handle,
    ) -> Self {
        Self {
            of: Mutex::default(),
            addresses: addresses.to_vec(),
            peers,
            accounts: served.accounts(),
            exports: served.exports().clone(),
            runtime,
        }
    }
}

impl SessionObserver for Controls {
    fn opened(&self, layers: &Arc<SessionLayers>) {
        // A read-only server shares the session with others, so it has no control socket.
        if layers.read_only {
            return;
        }
        let _context = self.runtime.enter();
        let control = Control::begin(
            &layers.session,
            layers.base.clone(),
            &layers.overlay,
            self.addresses.clone(),
            Arc::clone(&self.peers),
            Some(self.accounts.clone()),
            Some(TreeGuards::new(layers, &self.exports)),
        );
        self.of.lock().insert(layers.session.clone(), control);
    }

    fn is_in_use(&self, session: &Path) -> bool {
        self.of.lock().get(session).is_some_and(Control::is_in_use)
    }

    fn closing(&self, session: &Path) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let control = self.of.lock().remove(session);
        Box::pin(async move {
            if let Some(control) = control {
                control.end().await;
            }
        })
    }
}
