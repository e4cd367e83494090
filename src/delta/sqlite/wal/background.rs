//! Background threads that work on the session's files beside the writer, one task each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::{Poison, Result, StoreError};

/// The work of a background thread, done once per trigger.
pub(super) trait Task: Clone + Send + 'static {
    /// The thread's name.
    const NAME: &'static str;

    /// Runs the task once; `conn` is the thread's own connection to the session.
    ///
    /// # Errors
    /// Data that was not synced before may be lost.
    fn once(&self, conn: &Connection) -> Result<()>;
}

/// A background thread. The first trigger starts it; dropping this stops and joins it.
pub(super) struct BackgroundThread<T> {
    task: T,
    path: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    progress: Arc<TriggerCount>,
    poison: Poison,
}

/// State of the last trigger.
#[derive(Debug, Default)]
pub(super) struct TriggerCount {
    /// Triggered and not finished.
    is_busy: AtomicBool,
    /// Finished and not acknowledged.
    is_done: AtomicBool,
    waiting: Mutex<()>,
    finished: Condvar,
}

impl<T: Task> BackgroundThread<T> {
    /// A thread for the session file `session`. A failure of the task sets `poison`.
    pub(super) fn of(session: &Path, task: T, poison: &Poison) -> Self {
        let (path, poison) = (session.to_owned(), poison.clone());
        Self { task, path, thread: None, progress: Arc::default(), poison }
    }

    /// Runs the task once, unless it is already running.
    pub(super) fn trigger(&mut self) {
        if self.progress.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.thread.is_none() {
            self.thread = self.start();
        }
        let is_sent = self.thread.as_ref().is_some_and(|(triggers, _)| triggers.send(()).is_ok());
        if !is_sent {
            // The thread cannot be started: the writer does the whole task itself.
            self.progress.finish();
        }
    }

    /// The shared state, for other threads.
    pub(super) fn progress(&self) -> Arc<TriggerCount> {
        Arc::clone(&self.progress)
    }

    /// Whether the task was triggered and has not finished.
    pub(super) fn is_busy(&self) -> bool {
        self.progress.is_busy()
    }

    /// Whether the task has finished since the last [`BackgroundThread::acknowledge`].
    pub(super) fn is_done(&self) -> bool {
        self.progress.is_done.load(Ordering::Acquire)
    }

    /// Blocks until the task is not running.
    pub(super) fn wait(&self) {
        let mut waiting = self.progress.waiting.lock();
        while self.is_busy() {
            self.progress.finished.wait(&mut waiting);
        }
    }

    /// Clears [`BackgroundThread::is_done`].
    pub(super) fn acknowledge(&self) {
        self.progress.is_done.store(false, Ordering::Release);
    }

    /// Stops the thread and closes its connection.
    pub(super) fn stop(&mut self) {
        end(self.thread.take());
    }

    fn start(&self) -> Option<(Sender<()>, JoinHandle<()>)> {
        let (triggers, triggered) = mpsc::channel();
        let (task, path) = (self.task.clone(), self.path.clone());
        let (progress, poison) = (Arc::clone(&self.progress), self.poison.clone());
        let thread = thread::Builder::new()
            .name(T::NAME.to_owned())
            .spawn(move || run(&task, &path, &triggered, &progress, &poison))
            .inspect_err(|error| tracing::warn!(%error, name = T::NAME, "cannot start a thread"));
        Some((triggers, thread.ok()?))
    }
}

impl<T> Drop for BackgroundThread<T> {
    fn drop(&mut self) {
        end(self.thread.take());
    }
}

fn end(thread: Option<(Sender<()>, JoinHandle<()>)>) {
    if let Some((triggers, thread)) = thread {
        drop(triggers);
        drop(thread.join());
    }
}

/// Guard for one run of the task: even if the task panics, waiting threads are woken.
struct RunGuard<'a> {
    progress: &'a TriggerCount,
    poison: &'a Poison,
    outcome: Result<()>,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = &self.outcome {
            self.poison.set(error);
        }
        self.progress.finish();
    }
}

impl TriggerCount {
    /// Whether the task was triggered and has not finished.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    fn finish(&self) {
        let _waiting = self.waiting.lock();
        self.is_done.store(true, Ordering::Release);
        self.is_busy.store(false, Ordering::Release);
        self.finished.notify_all();
    }
}

/// Runs the task at each trigger, until the sender is dropped.
fn run<T: Task>(
    task: &T,
    path: &Path,
    triggered: &Receiver<()>,
    progress: &TriggerCount,
    poison: &Poison,
) {
    let mut connection = None;
    while triggered.recv().is_ok() {
        let panicked = StoreError::io(format!("{} panicked", T::NAME));
        let mut guard = RunGuard { progress, poison, outcome: Err(panicked) };
        if connection.is_none() {
            connection = open(path)
                .inspect_err(|error| tracing::warn!(%error, name = T::NAME, "cannot begin"))
                .ok();
        }
        // Without a connection (for example, no descriptor is left), the writer does the whole
        // task.
        guard.outcome = connection.as_ref().map_or(Ok(()), |conn| task.once(conn));
    }
}

fn open(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    connect::no_checkpoint_on_close(&conn)?;
    Ok(conn)
}
