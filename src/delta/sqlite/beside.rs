//! A thread that copies the log into the database while the writer goes on.
//!
//! It does most of a checkpoint; what the writer appended meanwhile is left to the writer itself,
//! which is the only one that can do the last bit: the log starts over once all of it is copied.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use super::connect::{self, Role};
use super::log::checkpoint;

/// The thread; it is started when it is asked for the first time, and ends with this.
pub(super) struct Beside {
    path: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// It was asked, and is not done.
    busy: AtomicBool,
    /// It was asked and is done, and nobody has taken notice.
    done: AtomicBool,
    /// Why it failed. What was not synced before may be lost.
    failure: Mutex<Option<StoreError>>,
    finished: Condvar,
}

impl Beside {
    /// For the session file `session`.
    pub(super) fn of(session: &Path) -> Self {
        Self { path: session.to_owned(), thread: None, state: Arc::default() }
    }

    /// Asks it to copy what is in the log, unless it does.
    pub(super) fn ask(&mut self) {
        if self.state.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.thread.is_none() {
            self.thread = self.start();
        }
        let asked = self.thread.as_ref().is_some_and(|(asks, _)| asks.send(()).is_ok());
        if !asked {
            // There is no thread to be had: the writer does it all.
            self.state.finish(Ok(()));
        }
    }

    /// Whether it is done since the last call of [`Beside::take_notice`].
    pub(super) fn is_done(&self) -> bool {
        self.state.done.load(Ordering::Acquire)
    }

    /// Returns once it is not at work: nobody else can copy the log while it is.
    pub(super) fn wait(&self) {
        let mut failure = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner);
        while self.state.busy.load(Ordering::Acquire) {
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
        if let Some((asks, thread)) = self.thread.take() {
            drop(asks);
            drop(thread.join());
        }
    }

    fn start(&self) -> Option<(Sender<()>, JoinHandle<()>)> {
        let (asks, asked) = mpsc::channel();
        let (path, state) = (self.path.clone(), Arc::clone(&self.state));
        let thread = thread::Builder::new()
            .name("acetate-log".to_owned())
            .spawn(move || serve(&path, &asked, &state))
            .inspect_err(|error| tracing::warn!(%error, "cannot start a thread for the log"));
        Some((asks, thread.ok()?))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One time that it was asked: however it ends, nobody waits in vain.
struct Turn<'a> {
    state: &'a State,
    outcome: Result<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.state.finish(std::mem::replace(&mut self.outcome, Ok(())));
    }
}

impl State {
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

/// Copies the log whenever asked, until nobody can ask any more.
fn serve(path: &Path, asked: &Receiver<()>, state: &State) {
    let mut connection = None;
    while asked.recv().is_ok() {
        let panicked = StoreError::Io("copying the log panicked".to_owned());
        let mut turn = Turn { state, outcome: Err(panicked) };
        if connection.is_none() {
            connection = open(path)
                .inspect_err(|error| tracing::warn!(%error, "the writer copies its log alone"))
                .ok();
        }
        // Without a connection (no descriptor left, say) the writer does it all.
        turn.outcome = connection.as_ref().map_or(Ok(()), |conn| checkpoint(conn, "PASSIVE"));
    }
}

fn open(path: &Path) -> Result<Connection> {
    let conn = connect::open(path, Role::Writer)?;
    connect::prepare_to_write(&conn)?;
    Ok(conn)
}
