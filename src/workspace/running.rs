//! An open session with its background tasks, until it is closed.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::error::{Error, Result};
use super::layers::SessionLayers;
use super::{log_bound, session_file};
use crate::delta::{BackgroundThreads, PendingCopies, Store};
use crate::overlay::Overlay;
use crate::vfs::FsError;
use crate::worker::WorkError;

/// Interval of checks whether a base hangs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Time to wait at the end for the last uses of a session.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait at the end for a running check of the audit log.
const PRUNE_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What the end of a session does about pending content: base files that are copied in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingAtEnd {
    /// Copies the rest, however long that takes.
    Finish,
    /// Leaves the rest in the session as pending; its next server continues.
    Leave,
}

/// An open session with its background tasks.
pub struct RunningSession {
    /// The session.
    pub layers: Arc<SessionLayers>,
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
        // Most sessions have no bound: they need no connection for it.
        let is_bound = layers.log_bound.is_bound() && layers.memory.is_none();
        let pruning = (!layers.read_only && is_bound).then(|| {
            let (file, overlay) = (layers.session.clone(), Arc::clone(&layers.overlay));
            let stop = Arc::new(Notify::new());
            let threads = Arc::clone(&layers.pool) as Arc<dyn BackgroundThreads>;
            let bound = layers.log_bound;
            let keep = log_bound::keep(file, overlay, bound, threads, Arc::clone(&stop));
            (runtime.spawn(keep), stop)
        });
        let layers = Arc::new(layers);
        Self { layers, copying, checkpoints, freeing, watching, pruning }
    }

    /// Copies pending content, or leaves it, and closes the session. `progress` is called at
    /// intervals with the rest.
    ///
    /// Returns the content that is still pending: left, or impossible to copy; or the error that
    /// ended copying.
    ///
    /// # Errors
    /// The session was not closed cleanly.
    pub async fn end(
        self,
        pending: PendingAtEnd,
        progress: impl FnMut(PendingCopies),
    ) -> Result<std::result::Result<PendingCopies, FsError>> {
        abort(self.watching).await;
        // The next server continues.
        abort(self.freeing).await;
        if self.checkpoints.is_some() {
            abort(self.checkpoints).await;
            if !self.layers.overlay.is_lost() {
                end_of_changes(&self.layers.overlay).await;
            }
        }
        if let Some((mut pruning, stop)) = self.pruning {
            stop.notify_one();
            if tokio::time::timeout(PRUNE_STOP_TIMEOUT, &mut pruning).await.is_err() {
                abort(Some(pruning)).await;
            }
        }
        let SessionLayers { session, overlay, worker, store, .. } = &*self.layers;
        let (session, store) = (session.clone(), Weak::clone(store));
        let mut left = Ok(PendingCopies::default());
        if self.copying.is_some() {
            abort(self.copying).await;
            left = tokio::select! {
                biased;
                // The session's next server continues.
                () = std::future::ready(()), if overlay.is_lost() => Err(FsError::TryLater),
                left = finish(overlay, pending, progress) => left,
                // The next server continues.
                () = until(|| overlay.is_base_stuck()) => Err(FsError::TryLater),
            };
        }
        let closed = tokio::select! {
            closed = worker.shut_down() => closed,
            // The writer's thread cannot be joined: the session is left as after a crash.
            () = until(|| overlay.is_writer_stuck()) => Err(WorkError::Stuck),
        };
        touch(&session);
        drop(self.layers);
        closed.map_err(|source| Error::Close { session: session.clone(), source })?;
        await_release(&session, &store).await;
        Ok(left)
    }
}

/// Gives a session the time of its last use: expiry by the server of another exports file goes by
/// the times of files, and calls that only read change none.
fn touch(session: &Path) {
    // It may be on a read-only filesystem.
    let _unchanged = File::open(session).and_then(|it| it.set_modified(SystemTime::now()));
}

/// Ends a background task, and waits until it has released the session.
async fn abort(task: Option<JoinHandle<()>>) {
    let Some(task) = task else { return };
    task.abort();
    // A base that hangs may block it.
    let _late = tokio::time::timeout(RELEASE_TIMEOUT, task).await;
}

/// Waits until the lock of a closed session is released, so that it can be opened again.
async fn await_release(session: &Path, store: &Weak<dyn Store>) {
    let released = async {
        while store.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(RELEASE_TIMEOUT, released).await.is_err() {
        tracing::warn!(session = %session.display(), "a closed session is still in use");
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

/// Stores originals, which only this process knows, and copies pending content; returns what is
/// still pending.
async fn finish(
    overlay: &Overlay,
    pending: PendingAtEnd,
    progress: impl FnMut(PendingCopies),
) -> std::result::Result<PendingCopies, FsError> {
    overlay.keep_all_removed().await;
    match overlay.pending_copies().await {
        Ok(PendingCopies { files: 1.., .. }) if pending == PendingAtEnd::Finish => {
            overlay.finish_copies(progress).await
        }
        left => left,
    }
}

/// Waits until `condition` holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
