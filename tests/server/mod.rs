//! The server over loopback, with a scripted program; and the I/O-free parts below it.

mod connections;
mod crowded;
mod fake;
mod hostile;
mod lock_manager;
mod lookout;
mod peer;
mod portmapper;
mod record;
mod reply_cache;
mod rpc;
#[cfg(target_os = "linux")]
mod shares;
mod shutdown;
