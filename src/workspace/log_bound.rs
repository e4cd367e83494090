//! Prunes the audit log of a served session to its bound.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::config::KeepLogConfig;
use crate::delta::BackgroundThreads;
use crate::delta::sqlite::LogKeep;
use crate::inspect::log::{AuditLog, LogOptions};
use crate::inspect::opened::{host, open_session};
use crate::overlay::Overlay;
use crate::vfs::Time;

/// Interval of checks of the log.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Pause between two transactions, of at most 1,000 rows each, so that clients' changes get in
/// between.
const PAUSE: Duration = Duration::from_millis(20);

/// The bound that an exports file sets.
pub(super) fn of_config(keep: KeepLogConfig) -> LogKeep {
    let KeepLogConfig { changes, days } = keep;
    LogKeep { rows: changes, secs: days.map(|days| days.saturating_mul(24 * 60 * 60)) }
}

/// Prunes the log periodically, to the bound `keep`.
///
/// Returns after `stop` is notified, with its connection closed: the writer's connection must be
/// the last to close, because that one removes the WAL.
pub(super) async fn keep(
    session: PathBuf,
    overlay: Arc<Overlay>,
    keep: LogKeep,
    threads: Arc<dyn BackgroundThreads>,
    stop: Arc<Notify>,
) {
    let stopped_within = async |time| tokio::time::timeout(time, stop.notified()).await.is_ok();
    loop {
        if let Some(last) = look(&session, keep, &threads).await {
            loop {
                match overlay.prune_audit(last).await {
                    Ok(0) => break,
                    Ok(_) if stopped_within(PAUSE).await => return,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "the audit log is not shortened");
                        break;
                    }
                }
            }
        }
        if stopped_within(LOOK_INTERVAL).await {
            return;
        }
    }
}

/// [`last_to_go`], on a thread that may block. If the caller does not wait any more, the session is
/// not opened.
async fn look(session: &Path, keep: LogKeep, threads: &Arc<dyn BackgroundThreads>) -> Option<i64> {
    let (reply, last) = oneshot::channel();
    let file = session.to_owned();
    threads.run(Box::new(move || {
        if !reply.is_closed() {
            // The caller may have gone in between.
            let _ = reply.send(last_to_go(&file, keep));
        }
    }));
    last.await.ok().flatten()
}

/// The last row to delete; `None` if there is none. Rows that `apply` and the reply cache need are
/// kept.
fn last_to_go(session: &Path, keep: LogKeep) -> Option<i64> {
    let session = open_session(session).ok()?;
    let LogKeep { rows, secs } = keep;
    let now = host().ok()?.now;
    let since = secs.map(|secs| Time { secs: now.secs.saturating_sub_unsigned(secs), ..now });
    let last =
        AuditLog::open(&session, LogOptions::default()).ok()?.prunable(now, rows, since).ok()?;
    (last > 0).then_some(last)
}
