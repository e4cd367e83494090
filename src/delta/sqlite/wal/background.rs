//! Tasks that work on the session's files beside the writer, on threads that the sessions of a
//! server share. A task has no thread of its own: each run takes one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::{BackgroundThreads, BackgroundWork, Poison, Result, StoreError};

/// The work of a background task, done once per trigger.
pub(super) trait Task: Clone + Send + 'static {
    /// The task's name, for messages.
    const NAME: &'static str;

    /// Whether a run needs a connection to the session.
    const CONNECTS: bool;

    /// Runs the task once; `conn` is the task's own connection to the session, if it needs one.
    ///
    /// # Errors
    /// Data that was not synced before may be lost.
    fn once(&self, conn: Option<&Connection>) -> Result<()>;
}

/// A task that runs beside the writer. Dropping it ends its run, and closes its connection.
pub(super) struct BackgroundTask<T> {
    task: T,
    path: PathBuf,
    threads: Arc<dyn BackgroundThreads>,
    /// Kept between runs that follow each other.
    connection: Arc<Mutex<Option<Connection>>>,
    progress: Arc<TaskProgress>,
    poison: Poison,
}

/// State of the last trigger.
#[derive(Debug, Default)]
pub(super) struct TaskProgress {
    /// Triggered and not finished.
    is_busy: AtomicBool,
    /// Finished and not acknowledged.
    is_done: AtomicBool,
    stage: Mutex<Stage>,
    finished: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Triggered; no thread has begun it.
    Waiting,
    Running,
}

impl<T: Task> BackgroundTask<T> {
    /// A task for the session file `session`. A failure of the task sets `poison`.
    pub(super) fn of(
        session: &Path,
        task: T,
        threads: &Arc<dyn BackgroundThreads>,
        poison: &Poison,
    ) -> Self {
        let (path, threads, poison) = (session.to_owned(), Arc::clone(threads), poison.clone());
        let (connection, progress) = (Arc::default(), Arc::default());
        Self { task, path, threads, connection, progress, poison }
    }

    /// Runs the task once, unless it is triggered already. `keeps` says that another run is likely
    /// soon, so that the connection stays open.
    pub(super) fn trigger(&self, keeps: bool) {
        if self.progress.begin() && !self.threads.run(self.work(keeps)) {
            // The writer does the whole task itself.
            self.progress.withdraw();
        }
    }

    /// Like [`BackgroundTask::trigger`], but does nothing if no thread is free.
    pub(super) fn trigger_if_free(&self, keeps: bool) {
        if self.progress.begin() && !self.threads.run_now(self.work(keeps)) {
            self.progress.withdraw();
        }
    }

    /// One run.
    fn work(&self, keeps: bool) -> BackgroundWork {
        let (task, path) = (self.task.clone(), self.path.clone());
        let (progress, poison) = (Arc::clone(&self.progress), self.poison.clone());
        let connection = Arc::clone(&self.connection);
        Box::new(move || {
            if !progress.start() {
                return;
            }
            let panicked = StoreError::io(format!("{} panicked", T::NAME));
            let mut guard =
                RunGuard { progress: &progress, poison: &poison, outcome: Err(panicked) };
            guard.outcome = run(&task, &path, &connection, keeps);
        })
    }
}

impl<T> BackgroundTask<T> {
    /// The shared state, for other threads.
    pub(super) fn progress(&self) -> Arc<TaskProgress> {
        Arc::clone(&self.progress)
    }

    /// Whether the task was triggered and has not finished.
    pub(super) fn is_busy(&self) -> bool {
        self.progress.is_busy()
    }

    /// Whether the task has finished since the last [`BackgroundTask::acknowledge`].
    pub(super) fn is_done(&self) -> bool {
        self.progress.is_done.load(Ordering::Acquire)
    }

    /// Blocks until the task is not running. A run that no thread has begun does not begin: it may
    /// wait for the thread of the caller.
    pub(super) fn wait(&self) {
        self.progress.withdraw();
        let mut stage = self.progress.stage.lock();
        while *stage == Stage::Running {
            self.progress.finished.wait(&mut stage);
        }
    }

    /// Clears [`BackgroundTask::is_done`].
    pub(super) fn acknowledge(&self) {
        self.progress.is_done.store(false, Ordering::Release);
    }

    /// Closes the connection, unless the task is running.
    pub(super) fn disconnect(&self) {
        if let Some(mut connection) = self.connection.try_lock() {
            *connection = None;
        }
    }

    /// Ends the task's run, and closes its connection.
    pub(super) fn stop(&self) {
        self.wait();
        *self.connection.lock() = None;
    }
}

impl<T> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Guard for one run of the task: even if the task panics, waiting threads are woken.
struct RunGuard<'a> {
    progress: &'a TaskProgress,
    poison: &'a Poison,
    outcome: Result<()>,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = &self.outcome {
            self.poison.set(error);
        }
        self.progress.leave(Stage::Running);
    }
}

impl TaskProgress {
    /// Whether the task was triggered and has not finished.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Records a trigger; `false` if the last one has not finished.
    fn begin(&self) -> bool {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return false;
        }
        *self.stage.lock() = Stage::Waiting;
        true
    }

    /// Records that a thread begins the run; `false` if it is not wanted any more.
    fn start(&self) -> bool {
        let mut stage = self.stage.lock();
        let is_wanted = *stage == Stage::Waiting;
        if is_wanted {
            *stage = Stage::Running;
        }
        is_wanted
    }

    /// Takes back a run that no thread has begun: it counts as finished.
    fn withdraw(&self) {
        self.leave(Stage::Waiting);
    }

    /// Records that the run is finished, if it was at `stage`.
    fn leave(&self, stage: Stage) {
        let mut now = self.stage.lock();
        if *now == stage {
            *now = Stage::Idle;
            self.is_done.store(true, Ordering::Release);
            self.is_busy.store(false, Ordering::Release);
            self.finished.notify_all();
        }
    }
}

/// Runs the task once. Returns with the connection closed unless `keeps`.
fn run<T: Task>(
    task: &T,
    path: &Path,
    connection: &Mutex<Option<Connection>>,
    keeps: bool,
) -> Result<()> {
    if !T::CONNECTS {
        return task.once(None);
    }
    let mut connection = connection.lock();
    if connection.is_none() {
        *connection = open(path)
            .inspect_err(|error| tracing::warn!(%error, name = T::NAME, "cannot begin"))
            .ok();
    }
    // Without a connection (for example, no descriptor is left), the writer does the whole task.
    let outcome = connection.as_ref().map_or(Ok(()), |conn| task.once(Some(conn)));
    if !keeps {
        *connection = None;
    }
    outcome
}

fn open(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    connect::no_checkpoint_on_close(&conn)?;
    Ok(conn)
}
