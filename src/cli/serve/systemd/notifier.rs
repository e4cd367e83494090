//! Notifies the service manager (sd_notify(3)): one datagram for each message.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::cli::text;

/// Names the manager's socket: a path, or `@` and an abstract name.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// The time that a manager with a full queue gets to take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The additional time to stop that one message asks for. Copies report each second.
const STOP_EXTENSION: Duration = Duration::from_secs(30);

/// The longest status, in bytes. A longer one is cut.
const MAX_STATUS_BYTES: usize = 1024;

/// The way to the service manager. Clones share their state.
#[derive(Debug, Clone)]
pub(in crate::cli::serve) struct ServiceNotifier(Arc<NotifierState>);

#[derive(Debug)]
struct NotifierState {
    socket: Option<OsString>,
    /// Set at the stop. READY=1 is then wrong, even if a reload ends.
    is_stopping: AtomicBool,
}

impl ServiceNotifier {
    /// Notifies the manager that `NOTIFY_SOCKET` names.
    pub(in crate::cli::serve) fn from_environment() -> Self {
        Self::to(std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty()))
    }

    /// Notifies no manager, for a server that another command of this program started: the
    /// environment's manager waits for that command.
    pub(in crate::cli::serve) fn silent() -> Self {
        Self::to(None)
    }

    fn to(socket: Option<OsString>) -> Self {
        Self(Arc::new(NotifierState { socket, is_stopping: AtomicBool::new(false) }))
    }

    /// Whether there is a manager.
    pub(in crate::cli::serve) fn is_heard(&self) -> bool {
        self.0.socket.is_some()
    }

    /// Clients can connect, or a reload has ended.
    pub(in crate::cli::serve) fn ready(&self, status: impl Display) {
        match self.0.is_stopping.load(Ordering::Relaxed) {
            false => self.send(&format!("READY=1\n{}", status_line(status))),
            true => self.status(status),
        }
    }

    /// A reload has begun; [`ServiceNotifier::ready`] has to follow.
    pub(in crate::cli::serve) fn reloading(&self, status: impl Display) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        let status = status_line(status);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n{status}"));
    }

    /// The server stops, and is not ready again.
    pub(in crate::cli::serve) fn stopping(&self, status: impl Display) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
        self.send(&format!("STOPPING=1\n{}", status_line(status)));
    }

    /// The stop makes progress, and needs more time than the manager grants.
    pub(in crate::cli::serve) fn still_stopping(&self, status: impl Display) {
        let micros = STOP_EXTENSION.as_micros();
        self.send(&format!("EXTEND_TIMEOUT_USEC={micros}\n{}", status_line(status)));
    }

    /// What the server does, for people.
    pub(in crate::cli::serve) fn status(&self, status: impl Display) {
        self.send(&status_line(status));
    }

    /// The server is live.
    pub(super) fn watchdog(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.0.socket else { return };
        if let Err(error) = send_to(socket, message.as_bytes()) {
            tracing::warn!(%error, "cannot notify the service manager");
        }
    }
}

/// An assignment of `STATUS`, which is one line.
fn status_line(status: impl Display) -> String {
    let status = status.to_string();
    let mut end = status.len().min(MAX_STATUS_BYTES);
    while !status.is_char_boundary(end) {
        end -= 1;
    }
    format!("STATUS={}\n", text::printable(&status[..end]))
}

/// Sends a datagram from a socket of its own: the manager may have opened its socket again since
/// the last one.
fn send_to(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(SEND_TIMEOUT))?;
    sender.send_to_addr(message, &address_of(socket)?).map(drop)
}

fn address_of(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

/// Only Linux has abstract names.
#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::{MAX_STATUS_BYTES, ServiceNotifier, status_line};

    #[test]
    fn a_stop_asks_for_time_and_is_not_ready_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = ServiceNotifier::to(Some(path.into()));
        let next = || {
            let mut bytes = [0; 256];
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        notifier.ready("a");
        assert_eq!(next(), "READY=1\nSTATUS=a\n");
        notifier.stopping("b");
        assert_eq!(next(), "STOPPING=1\nSTATUS=b\n");
        notifier.still_stopping("c");
        assert_eq!(next(), "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=c\n");
        // A reload that ends after the signal to stop.
        notifier.ready("d");
        assert_eq!(next(), "STATUS=d\n");
    }

    #[test]
    fn a_status_is_one_short_line() {
        assert_eq!(status_line("serving"), "STATUS=serving\n");
        let odd = status_line("a\nREADY=1\u{1b}[0m");
        assert_eq!(odd.matches('\n').count(), 1, "{odd:?}");
        assert!(!odd.contains('\u{1b}'), "{odd:?}");
        let long = status_line("é".repeat(MAX_STATUS_BYTES));
        assert_eq!(long, format!("STATUS={}\n", "é".repeat(MAX_STATUS_BYTES / 2)));
    }
}
