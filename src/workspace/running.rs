//! A session that is open, with what goes on in the background: until it is ended, whole.

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

/// Time between two looks at whether a base hangs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Time that a look at the audit log may take when the session is ended.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// What tells open sessions apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub file: PathBuf,
    /// It is only read here, so that others may serve it too.
    pub read_only: bool,
}

/// Sessions that are open, and in no export any more.
#[must_use]
pub struct DroppedSessions(pub(super) HashMap<SessionKey, RunningSession>);

impl DroppedSessions {
    /// These sessions.
    pub(super) fn of(sessions: HashMap<SessionKey, RunningSession>) -> Self {
        Self(sessions)
    }
}

/// A session at work.
pub struct RunningSession {
    /// The session.
    pub layers: SessionLayers,
    copying: Option<JoinHandle<()>>,
    /// Looks whether the session file is still there, where changes are made.
    watching: Option<JoinHandle<()>>,
    /// Deletes the oldest changes of the audit log, where it has a bound; and what ends that.
    pruning: Option<(JoinHandle<()>, Arc<Notify>)>,
}

impl RunningSession {
    /// Begins to finish, in the background, what copy-up leaves; not where nothing is changed.
    pub fn begin(layers: SessionLayers, runtime: &Handle) -> Self {
        let copying = (!layers.read_only).then(|| {
            let overlay = Arc::clone(&layers.overlay);
            runtime.spawn(async move { overlay.copy_in_background().await })
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
        Self { layers, copying, watching, pruning }
    }

    /// Finishes what copy-up has left, as a session at rest is whole, and closes the session.
    /// `progress` hears now and then how much is left.
    ///
    /// Returns what could not be finished, or why nothing more could.
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
        if let Some((mut pruning, stop)) = self.pruning {
            stop.notify_one();
            if tokio::time::timeout(LONGEST_LOOK, &mut pruning).await.is_err() {
                pruning.abort();
            }
        }
        let SessionLayers { session, overlay, worker, .. } = self.layers;
        let mut left = Ok(PendingCopies::default());
        if let Some(copying) = self.copying {
            copying.abort();
            left = tokio::select! {
                left = finish(&overlay, progress) => left,
                // The next server goes on with it.
                () = until(|| overlay.is_base_stuck()) => Err(FsError::TryLater),
            };
        }
        let closed = tokio::select! {
            closed = worker.shut_down() => closed,
            // Its thread cannot be waited for: the session is as after a server that was killed.
            () = until(|| overlay.is_writer_stuck()) => Err(WorkError::Stuck),
        };
        closed.map_err(|source| Error::Close { session, source })?;
        Ok(left)
    }
}

/// Finishes what copy-up and removals have left; returns what could not be finished.
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

/// Returns once `condition` holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
