//! Records signals that ask this process to end, for work that ends at a safe point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::error::CliError;

/// Whether SIGINT, SIGTERM or SIGHUP has arrived.
#[derive(Debug, Clone)]
pub(super) struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// Catches the signals in a thread, except those that are ignored (`nohup`).
    ///
    /// # Errors
    /// The system has no resources for the thread or the runtime.
    pub(super) fn catch() -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::caused("cannot listen for signals", &error);
        let came = Arc::new(AtomicBool::new(false));
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            if is_ignored(kind) {
                continue;
            }
            let came = Arc::clone(&came);
            let mut arriving = {
                let _inside = runtime.enter();
                signal(kind).map_err(failed)?
            };
            runtime.spawn(async move {
                while arriving.recv().await.is_some() {
                    came.store(true, Ordering::SeqCst);
                }
            });
        }
        let wait = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(failed)?;
        Ok(Self(came))
    }

    /// Whether a signal has arrived.
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whether this process ignores a signal; `false` if the system does not report it.
pub(super) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = 1u64.checked_shl(kind.as_raw_value().cast_unsigned() - 1).unwrap_or(0);
    ignored & bit != 0
}
