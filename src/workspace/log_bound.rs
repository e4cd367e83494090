//! Deletes the oldest changes of the audit log of a session that is served, where the session has
//! a bound for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::KeepLogConfig;
use crate::delta::sqlite::LogKeep;
use crate::inspect::log::{AuditLog, LogOptions};
use crate::inspect::opened::{host, open_session};
use crate::overlay::Overlay;
use crate::vfs::Time;

/// Time between two looks at the log.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two transactions, each of which deletes 1,000 rows at most: clients' changes come
/// first.
const PAUSE: Duration = Duration::from_millis(20);

/// What an exports file says, as the session would keep it.
pub(super) fn of_config(keep: KeepLogConfig) -> LogKeep {
    let KeepLogConfig { changes, days } = keep;
    LogKeep { rows: changes, secs: days.map(|days| days.saturating_mul(24 * 60 * 60)) }
}

/// Looks at the log again and again; keeps what `keep` says, or else the session.
///
/// Returns once `stop` is notified, and then has the session file closed: the last connection that
/// is closed is to be the writer's, which removes the WAL.
pub(super) async fn keep(
    session: PathBuf,
    overlay: Arc<Overlay>,
    keep: Option<LogKeep>,
    stop: Arc<Notify>,
) {
    let stopped_within = async |time| tokio::time::timeout(time, stop.notified()).await.is_ok();
    loop {
        let file = session.clone();
        let last = tokio::task::spawn_blocking(move || last_to_go(&file, keep)).await;
        if let Ok(Some(last)) = last {
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

/// The last row that is to be deleted; `None` where none is. What `apply` and the reply cache need
/// stays.
fn last_to_go(session: &Path, keep: Option<LogKeep>) -> Option<i64> {
    let session = open_session(session).ok()?;
    let keep = keep.or_else(|| session.log_keep().ok());
    let LogKeep { rows, secs } = keep.filter(|keep| keep.is_bound())?;
    let now = host().ok()?.now;
    let since = secs.map(|secs| Time { secs: now.secs.saturating_sub_unsigned(secs), ..now });
    let last =
        AuditLog::open(&session, LogOptions::default()).ok()?.prunable(now, rows, since).ok()?;
    (last > 0).then_some(last)
}
