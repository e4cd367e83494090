//! Threads that work on the session's files while the writer goes on, one kind of work each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::file::connect::{self, Role};

/// What a thread does whenever it is asked.
pub(super) trait Task: Clone + Send + 'static {
    /// The thread's name.
    const NAME: &'static str;

    /// Does it once; `conn` is the thread's own connection to the session.
    ///
    /// # Errors
    /// What was not synced before may be lost.
    fn once(&self, conn: &Connection) -> Result<()>;
}

/// The thread; it is started when it is asked for the first time, and ends with this.
pub(super) struct BackgroundThread<W> {
    work: W,
    path: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    state: Arc<State>,
}

/// What it is at.
#[derive(Debug, Default)]
pub(super) struct State {
    /// It was asked, and is not done.
    busy: AtomicBool,
    /// It was asked and is done, and nobody has taken notice.
    done: AtomicBool,
    /// Why it failed. What was not synced before may be lost.
    failure: Mutex<Option<StoreError>>,
    finished: Condvar,
}

impl<W: Task> BackgroundThread<W> {
    /// For the session file `session`.
    pub(super) fn of(session: &Path, work: W) -> Self {
        Self { work, path: session.to_owned(), thread: None, state: Arc::default() }
    }

    /// Asks it to do its work once, unless it is at it.
    pub(super) fn ask(&mut self) {
        if self.state.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.thread.is_none() {
            self.thread = self.start();
        }
        let asked = self.thread.as_ref().is_some_and(|(asks, _)| asks.send(()).is_ok());
        if !asked {
            // There is no thread to be had: the writer does it all itself.
            self.state.finish(Ok(()));
        }
    }

    /// What it is at, for others.
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// Whether it was asked, and is not done.
    pub(super) fn is_busy(&self) -> bool {
        self.state.is_busy()
    }

    /// Whether it was done since the last call of [`BackgroundThread::take_notice`].
    pub(super) fn is_done(&self) -> bool {
        self.state.done.load(Ordering::Acquire)
    }

    /// Returns once it is not at work.
    pub(super) fn wait(&self) {
        let mut failure = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_busy() {
            let woken = self.state.finished.wait(failure);
            failure = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes notice of what it has done.
    pub(super) fn take_notice(&self) {
        self.state.done.store(false, Ordering::Release);
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread, and with it its connection.
    pub(super) fn stop(&mut self) {
        end(self.thread.take());
    }

    fn start(&self) -> Option<(Sender<()>, JoinHandle<()>)> {
        let (asks, asked) = mpsc::channel();
        let (work, path, state) = (self.work.clone(), self.path.clone(), Arc::clone(&self.state));
        let thread = thread::Builder::new()
            .name(W::NAME.to_owned())
            .spawn(move || serve(&work, &path, &asked, &state))
            .inspect_err(|error| tracing::warn!(%error, name = W::NAME, "cannot start a thread"));
        Some((asks, thread.ok()?))
    }
}

impl<W> Drop for BackgroundThread<W> {
    fn drop(&mut self) {
        end(self.thread.take());
    }
}

fn end(thread: Option<(Sender<()>, JoinHandle<()>)>) {
    if let Some((asks, thread)) = thread {
        drop(asks);
        drop(thread.join());
    }
}

/// One time that it was asked: however it ends, nobody waits in vain.
struct RunGuard<'a> {
    state: &'a State,
    outcome: Result<()>,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.state.finish(std::mem::replace(&mut self.outcome, Ok(())));
    }
}

impl State {
    /// Whether it was asked, and is not done.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn finish(&self, outcome: Result<()>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = outcome {
            *failure = Some(error);
        }
        self.done.store(true, Ordering::Release);
        self.busy.store(false, Ordering::Release);
        self.finished.notify_all();
    }
}

/// Works whenever asked, until nobody can ask any more.
fn serve<W: Task>(work: &W, path: &Path, asked: &Receiver<()>, state: &State) {
    let mut connection = None;
    while asked.recv().is_ok() {
        let panicked = StoreError::Io(format!("{} panicked", W::NAME));
        let mut turn = RunGuard { state, outcome: Err(panicked) };
        if connection.is_none() {
            connection = open(path)
                .inspect_err(|error| tracing::warn!(%error, name = W::NAME, "cannot begin"))
                .ok();
        }
        // Without a connection (no descriptor left, say) the writer does it all itself.
        turn.outcome = connection.as_ref().map_or(Ok(()), |conn| work.once(conn));
    }
}

fn open(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    connect::keep_log(&conn)?;
    Ok(conn)
}
