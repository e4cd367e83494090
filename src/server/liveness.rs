//! Whether a connection is still read from. The reply cache needs this: an equal call over another
//! connection is a retransmission only once the first connection has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A connection, kept alive as long as the reply cache has replies to its calls.
#[derive(Debug)]
pub struct ConnectionLiveness {
    /// The client's port.
    port: u16,
    has_ended: AtomicBool,
    end: Notify,
}

impl ConnectionLiveness {
    /// An open connection from the client's `port`.
    pub fn new(port: u16) -> Self {
        Self { port, has_ended: AtomicBool::new(false), end: Notify::new() }
    }

    /// Records that no further call is read from the connection.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    /// Whether no further call is read from the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns once the connection has ended.
    pub(super) async fn ended(&self) {
        // Created before the check, so that an end in between is not missed.
        let end = self.end.notified();
        if !self.has_ended() {
            end.await;
        }
    }

    /// Whether this is the same connection or a later one from the same port: two connections of
    /// one address and port are never open at once.
    pub(super) fn is_at_port_of(&self, other: &Self) -> bool {
        self.port == other.port
    }
}
