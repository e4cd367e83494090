//! The signals of a server.

use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::error::CliError;
use crate::cli::{FAILED, output};

/// SIGTERM and SIGINT.
pub(super) struct ServeSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ServeSignals {
    pub(super) fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::caused("cannot listen for signals", &error))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Completes at the first signal; a second one ends the process at once.
    ///
    /// In the background (`is_detached`), only SIGINT does that. `umount` and `run` stop a server
    /// with SIGTERM, and repeat it if they were interrupted.
    pub(super) async fn first(mut self, is_detached: bool) {
        self.next().await;
        if !is_detached {
            output::line(format_args!("stopping; a second signal stops at once"));
        }
        tokio::spawn(async move {
            if is_detached {
                self.interrupt.recv().await;
            } else {
                self.next().await;
            }
            process::exit(FAILED.into());
        });
    }

    /// Completes at the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
