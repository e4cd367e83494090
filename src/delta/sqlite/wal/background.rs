//! Threads that work on the session's files beside the writer, one kind of task each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::{Poison, Result, StoreError};

/// What a thread does each time that it is triggered.
pub(super) trait Task: Clone + Send + 'static {
    /// The thread's name.
    const NAME: &'static str;

    /// Does it once; `conn` is the thread's own connection to the session.
    ///
    /// # Errors
    /// What was not synced before may be lost.
    fn once(&self, conn: &Connection) -> Result<()>;
}

/// The thread. The first trigger starts it; dropping this ends it.
pub(super) struct BackgroundThread<T> {
    task: T,
    path: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    progress: Arc<TriggerCount>,
    poison: Poison,
}

/// How far the last trigger is.
#[derive(Debug, Default)]
pub(super) struct TriggerCount {
    /// Triggered, and not done.
    is_busy: AtomicBool,
    /// Done, and not acknowledged.
    is_done: AtomicBool,
    waiting: Mutex<()>,
    finished: Condvar,
}

impl<T: Task> BackgroundThread<T> {
    /// For the session file `session`; a task that fails sets `poison`.
    pub(super) fn of(session: &Path, task: T, poison: &Poison) -> Self {
        let (path, poison) = (session.to_owned(), poison.clone());
        Self { task, path, thread: None, progress: Arc::default(), poison }
    }

    /// Has the task done once, unless it is being done.
    pub(super) fn trigger(&mut self) {
        if self.progress.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.thread.is_none() {
            self.thread = self.start();
        }
        let is_sent = self.thread.as_ref().is_some_and(|(triggers, _)| triggers.send(()).is_ok());
        if !is_sent {
            // No thread can be started: the writer does all of the task itself.
            self.progress.finish();
        }
    }

    /// The progress, for other threads.
    pub(super) fn progress(&self) -> Arc<TriggerCount> {
        Arc::clone(&self.progress)
    }

    /// Whether it was triggered, and is not done.
    pub(super) fn is_busy(&self) -> bool {
        self.progress.is_busy()
    }

    /// Whether it was done since the last [`BackgroundThread::acknowledge`].
    pub(super) fn is_done(&self) -> bool {
        self.progress.is_done.load(Ordering::Acquire)
    }

    /// Returns once it is not busy.
    pub(super) fn wait(&self) {
        let mut waiting = self.progress.waiting.lock();
        while self.is_busy() {
            self.progress.finished.wait(&mut waiting);
        }
    }

    /// Takes note that it was done.
    pub(super) fn acknowledge(&self) {
        self.progress.is_done.store(false, Ordering::Release);
    }

    /// Ends the thread and its connection.
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

/// One run of the task: however it ends, those who wait are woken.
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
    /// Whether it was triggered, and is not done.
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

/// Runs the task at each trigger, until the sender of triggers is dropped.
fn run<T: Task>(
    task: &T,
    path: &Path,
    triggered: &Receiver<()>,
    progress: &TriggerCount,
    poison: &Poison,
) {
    let mut connection = None;
    while triggered.recv().is_ok() {
        let panicked = StoreError::Io(format!("{} panicked", T::NAME));
        let mut guard = RunGuard { progress, poison, outcome: Err(panicked) };
        if connection.is_none() {
            connection = open(path)
                .inspect_err(|error| tracing::warn!(%error, name = T::NAME, "cannot begin"))
                .ok();
        }
        // Without a connection (no descriptor left, say) the writer does all of the task itself.
        guard.outcome = connection.as_ref().map_or(Ok(()), |conn| task.once(conn));
    }
}

fn open(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    connect::keep_log(&conn)?;
    Ok(conn)
}
