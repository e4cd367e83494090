//! An open session with its background tasks, until it is closed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::error::{Error, Result};
use super::layers::SessionLayers;
use super::{log_bound, session_file};
use crate::delta::PendingCopies;
use crate::overlay::Overlay;
use crate::vfs::FsError;
use crate::worker::WorkError;

/// Interval of checks whether a base hangs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Time to wait at the end for a running check of the audit log.
const PRUNE_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Identifies an open session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub file: PathBuf,
    /// Opened read-only here, so that other processes may serve it.
    pub read_only: bool,
}

/// Open sessions that no export uses any more.
#[must_use]
pub struct DroppedSessions(pub(super) HashMap<SessionKey, RunningSession>);

impl DroppedSessions {
    /// Wraps these sessions.
    pub(super) fn of(sessions: HashMap<SessionKey, RunningSession>) -> Self {
        Self(sessions)
    }
}

/// An open session with its background tasks.
pub struct RunningSession {
    /// The session.
    pub layers: SessionLayers,
    copying: Option<JoinHandle<()>>,
    /// Detects that the session file was removed or replaced.
    watching: Option<JoinHandle<()>>,
    /// Makes checkpoints after changes.
    checkpoints: Option<JoinHandle<()>>,
    /// Frees what removed checkpoints leave.
    freeing: Option<JoinHandle<()>>,
    /// Prunes the audit log, with the signal to stop.
    pruning: Option<(JoinHandle<()>, Arc<Notify>)>,
}

impl RunningSession {
    /// Starts the background tasks, unless the session is read-only.
    pub fn begin(layers: SessionLayers, runtime: &Handle) -> Self {
        let copying = (!layers.read_only).then(|| {
            let overlay = Arc::clone(&layers.overlay);
            runtime.spawn(async move { overlay.copy_in_background().await })
        });
        let is_idle_mode = layers.checkpoints.idle.is_some();
        let checkpoints = (!layers.read_only && is_idle_mode).then(|| {
            let overlay = Arc::clone(&layers.overlay);
            runtime.spawn(async move { overlay.checkpoint_when_idle().await })
        });
        let freeing = (!layers.read_only).then(|| {
            let overlay = Arc::clone(&layers.overlay);
            runtime.spawn(async move { overlay.bound_checkpoints_in_background().await })
        });
        let watching = (!layers.read_only).then(|| {
            let (file, overlay) = (layers.session.clone(), Arc::clone(&layers.overlay));
            runtime.spawn(session_file::watch(file, overlay))
        });
        let pruning = (!layers.read_only && layers.memory.is_none()).then(|| {
            let (file, overlay) = (layers.session.clone(), Arc::clone(&layers.overlay));
            let stop = Arc::new(Notify::new());
            let keep = log_bound::keep(file, overlay, layers.keep_log, Arc::clone(&stop));
            (runtime.spawn(keep), stop)
        });
        Self { layers, copying, checkpoints, freeing, watching, pruning }
    }

    /// Copies pending content and closes the session. `progress` is called at intervals with the
    /// rest.
    ///
    /// Returns the content that could not be copied, or the error that ended copying.
    ///
    /// # Errors
    /// The session was not closed cleanly.
    pub async fn end(
        self,
        progress: impl FnMut(PendingCopies),
    ) -> Result<std::result::Result<PendingCopies, FsError>> {
        if let Some(watching) = self.watching {
            watching.abort();
        }
        if let Some(freeing) = self.freeing {
            // The next server continues.
            freeing.abort();
        }
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.abort();
            end_of_changes(&self.layers.overlay).await;
        }
        if let Some((mut pruning, stop)) = self.pruning {
            stop.notify_one();
            if tokio::time::timeout(PRUNE_STOP_TIMEOUT, &mut pruning).await.is_err() {
                pruning.abort();
            }
        }
        let SessionLayers { session, overlay, worker, .. } = self.layers;
        let mut left = Ok(PendingCopies::default());
        if let Some(copying) = self.copying {
            copying.abort();
            left = tokio::select! {
                left = finish(&overlay, progress) => left,
                // The next server continues.
                () = until(|| overlay.is_base_stuck()) => Err(FsError::TryLater),
            };
        }
        let closed = tokio::select! {
            closed = worker.shut_down() => closed,
            // The writer's thread cannot be joined: the session is left as after a crash.
            () = until(|| overlay.is_writer_stuck()) => Err(WorkError::Stuck),
        };
        closed.map_err(|source| Error::Close { session, source })?;
        Ok(left)
    }
}

/// Makes a checkpoint of the last changes. If the writer is stuck, the next server makes it.
async fn end_of_changes(overlay: &Overlay) {
    let made = tokio::select! {
        made = overlay.checkpoint_if_changed() => made,
        () = until(|| overlay.is_writer_stuck()) => return,
    };
    if let Err(error) = made {
        tracing::warn!(%error, "no checkpoint was made at the end");
    }
}

/// Stores originals and copies pending content; returns what could not be copied.
async fn finish(
    overlay: &Overlay,
    progress: impl FnMut(PendingCopies),
) -> std::result::Result<PendingCopies, FsError> {
    overlay.keep_all_removed().await;
    match overlay.pending_copies().await {
        Ok(PendingCopies { files: 1.., .. }) => overlay.finish_copies(progress).await,
        left => left,
    }
}

/// Waits until `condition` holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
