//! What a server owes the service manager that started it: systemd, or another one that speaks its
//! protocols (sd_notify(3), sd_listen_fds(3)).
//!
//! - [`ServiceNotifier`]: says when clients can connect, and what the server does
//! - [`inherited_listeners`]: sockets that the manager holds, also while no server runs
//! - [`keep_watchdog`]: says that the server is live
//!
//! Everything here does nothing if the environment names no service manager.

mod activation;
mod notifier;
mod watchdog;

pub(super) use activation::inherited_listeners;
pub(super) use notifier::ServiceNotifier;
pub(super) use watchdog::{keep_watchdog, watchdog_period};
