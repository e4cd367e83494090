//! How a server comes to its end, and which failures of calls that explains.

use std::sync::atomic::{AtomicBool, Ordering};

use super::calls::{is_gone, status};
use super::rpc::{Error, Result};
use super::server::Server;

/// NFS3ERR_JUKEBOX: what a server says that is about to stop.
const JUKEBOX: u32 = 10008;

/// The end that a server is to come to, as those who load it see it.
pub struct End {
    /// SIGTERM, not kill -9.
    pub is_gentle: bool,
    has_begun: AtomicBool,
}

impl End {
    /// An end that is yet to come.
    pub fn new(is_gentle: bool) -> Self {
        Self { is_gentle, has_begun: AtomicBool::new(false) }
    }

    /// Ends the server, having said that it begins.
    pub fn bring(&self, server: &mut Server) -> Result<()> {
        if let Some(status) = server.process.as_mut().ok_or("no server runs")?.try_wait()? {
            return Err(format!("the server ended by itself: {status}").into());
        }
        self.has_begun.store(true, Ordering::SeqCst);
        if self.is_gentle { server.stop() } else { server.kill() }
    }

    /// Whether this is why a call failed: none may while the server lives.
    pub fn explains(&self, error: &Error) -> bool {
        let is_leave = self.is_gentle && status(error) == Some(JUKEBOX);
        self.has_begun.load(Ordering::SeqCst) && (is_gone(error) || is_leave)
    }
}
