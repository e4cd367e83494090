//! Reader threads, which take operations from one shared queue, each with a connection of its
//! own. None of them ever sees the writer's connection.
//!
//! A thread that is stuck in one operation, in a base that hangs for example, is replaced: so the
//! others of the session go on. Once no more may be replaced and all are stuck, reads are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::delta::{Reader, Store, StoreError};

use super::job::{ReadOperation, isolate};
use super::limits::{MAX_LOOK_GAP, MAX_REPLACED_OF_SESSION, SLOW_LOOK, STUCK};
use super::queue::{BatchSize, TakeOutcome};
use super::thread_watch::Moment;
use super::{WorkError, WorkerShared, threads};

/// A reader thread takes one operation at a time, so that the others can take the next.
const ONE: BatchSize = BatchSize { ops: 1, bytes: 0 };

/// What a thread of the worker is at, for those that watch it.
#[derive(Default)]
pub(super) struct Activity {
    /// When its operation began; 0 while it has none.
    began: AtomicU64,
    /// When the operation that the last look saw began, and when that look was.
    seen: AtomicU64,
    looked: AtomicU64,
    /// How long looks have seen that operation, in milliseconds.
    age: AtomicU64,
    is_stuck: AtomicBool,
}

impl Activity {
    /// Notes that an operation begins.
    pub fn begin(&self, now: Moment) {
        self.began.store(now, Ordering::SeqCst);
    }

    /// Notes that the operation is over; whether the thread counted as stuck.
    pub fn end(&self) -> bool {
        self.began.store(0, Ordering::SeqCst);
        self.is_stuck.load(Ordering::SeqCst)
    }

    /// Whether it is at an operation.
    pub fn is_busy(&self) -> bool {
        self.began.load(Ordering::SeqCst) != 0
    }

    /// Whether it counts as stuck.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Marks the thread stuck after [`STUCK`]; true once, when it becomes stuck. One thread looks.
    pub fn look(&self, now: Moment) -> bool {
        let began = self.began.load(Ordering::SeqCst);
        let is_long = began != 0 && self.seen_for(began, now) >= STUCK;
        if !is_long || self.is_stuck.swap(true, Ordering::SeqCst) {
            return false;
        }
        // It may have come to an end in between.
        let is_stuck = self.began.load(Ordering::SeqCst) == began;
        if !is_stuck {
            self.is_stuck.store(false, Ordering::SeqCst);
        }
        is_stuck
    }

    /// How long looks have seen the operation that `began` then. A gap between two looks counts
    /// as [`MAX_LOOK_GAP`] at most: the whole process may have been stopped.
    fn seen_for(&self, began: Moment, now: Moment) -> Duration {
        let looked = self.looked.swap(now, Ordering::Relaxed);
        let age = if self.seen.swap(began, Ordering::Relaxed) == began {
            let gap = Duration::from_millis(now.saturating_sub(looked)).min(MAX_LOOK_GAP);
            Duration::from_millis(self.age.load(Ordering::Relaxed)) + gap
        } else {
            Duration::ZERO
        };
        let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.age.store(millis, Ordering::Relaxed);
        age
    }

    /// Counts as stuck no more.
    pub fn recover(&self) {
        self.is_stuck.store(false, Ordering::SeqCst);
    }
}

/// The reader threads of one session.
#[derive(Default)]
pub(super) struct ReaderThreads {
    state: Mutex<ReadersState>,
    ended: Condvar,
    /// Whether all of them are stuck, and no more may be started.
    are_stuck: AtomicBool,
}

#[derive(Default)]
struct ReadersState {
    running: Vec<Arc<ReaderThread>>,
    started: usize,
    replaced: usize,
}

#[derive(Default)]
struct ReaderThread {
    activity: Activity,
    /// Another one was started in its place: it ends when its operation does.
    is_replaced: AtomicBool,
}

impl ReaderThreads {
    /// Starts a thread for each connection.
    pub fn start(
        shared: &Arc<WorkerShared>,
        connections: Vec<Box<dyn Reader>>,
    ) -> Result<(), StoreError> {
        let mut state = shared.readers.lock();
        connections.into_iter().try_for_each(|connection| state.start(shared, Some(connection)))
    }

    /// Whether all threads are stuck.
    pub fn are_stuck(&self) -> bool {
        self.are_stuck.load(Ordering::Relaxed)
    }

    /// Looks for threads that are stuck, and replaces them; whether any is at work.
    pub fn look(&self, shared: &Arc<WorkerShared>, now: Moment) -> bool {
        let mut state = self.lock();
        let running = state.running.clone();
        for thread in &running {
            if !thread.activity.look(now) {
                continue;
            }
            tracing::warn!(name = "acetate-read", "a thread is stuck in one operation");
            if state.replaced < MAX_REPLACED_OF_SESSION && shared.watch.take_replacement() {
                match state.start(shared, None) {
                    Ok(()) => {
                        thread.is_replaced.store(true, Ordering::SeqCst);
                        state.replaced += 1;
                    }
                    Err(_) => shared.watch.give_replacement_back(),
                }
            }
        }
        let are_stuck = state.running.iter().all(|thread| thread.activity.is_stuck());
        // Where all have ended, the queue is closed.
        let are_stuck = are_stuck && !state.running.is_empty();
        self.are_stuck.store(are_stuck, Ordering::SeqCst);
        self.ended.notify_all();
        drop(state);
        if are_stuck {
            refuse_waiting(shared);
        }
        running.iter().any(|thread| thread.activity.is_busy())
    }

    /// Returns once the threads have ended, but for those that are stuck.
    pub fn wait(&self) {
        let mut state = self.lock();
        while state.running.iter().any(|thread| !thread.activity.is_stuck()) {
            self.ended.wait_for(&mut state, SLOW_LOOK);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadersState> {
        self.state.lock()
    }
}

impl ReadersState {
    /// Starts one more thread; without a connection it opens one itself.
    fn start(
        &mut self,
        shared: &Arc<WorkerShared>,
        connection: Option<Box<dyn Reader>>,
    ) -> Result<(), StoreError> {
        let thread = Arc::new(ReaderThread::default());
        let running = RunningReader { shared: Arc::clone(shared), thread: Arc::clone(&thread) };
        let closed = || StoreError::Io("the session is closed".to_owned());
        let place = ReaderSlot { store: shared.store.upgrade().ok_or_else(closed)?, connection };
        let name = format!("acetate-read-{}", self.started);
        // The thread takes itself off the list, whose lock is held here.
        self.running.push(thread);
        self.started += 1;
        let started = thread::Builder::new().name(name).spawn(move || running.serve(place));
        match started {
            Ok(_) => Ok(()),
            Err(error) => {
                self.running.pop();
                Err(StoreError::Io(format!("cannot start a reader thread: {error}")))
            }
        }
    }
}

/// Answers the reads that no thread will take.
fn refuse_waiting(shared: &WorkerShared) {
    let mut reads = Vec::new();
    let cost = shared.reads.take_all(&mut reads);
    for read in reads {
        isolate("answering a read", || read.answer(Err(WorkError::Stuck)));
    }
    shared.reads.release(cost);
}

/// A thread that runs.
struct RunningReader {
    shared: Arc<WorkerShared>,
    thread: Arc<ReaderThread>,
}

impl RunningReader {
    /// Serves the queue until it is closed and empty, or another thread does so in its place.
    fn serve(self, mut place: ReaderSlot) {
        threads::join();
        let shared = &self.shared;
        shared.inline_readers.fill(&place.store);
        let mut taken = Vec::with_capacity(ONE.ops);
        while let TakeOutcome::Items(cost) = shared.reads.take(&mut taken, ONE, None, |_, _| false)
        {
            self.thread.activity.begin(shared.watch.now());
            shared.watch.wake();
            for mut read in taken.drain(..) {
                let outcome = place.read(read.operation());
                isolate("answering a read", || read.answer(outcome));
            }
            shared.reads.release(cost);
            if self.thread.activity.end() && self.was_replaced() {
                break;
            }
            shared.inline_readers.fill(&place.store);
        }
        // Before it counts as ended: the session is closed then, and the process may end.
        drop(place);
    }

    /// Counts as stuck no more; whether another thread has its place.
    fn was_replaced(&self) -> bool {
        let readers = &self.shared.readers;
        let mut state = readers.lock();
        self.thread.activity.recover();
        readers.are_stuck.store(false, Ordering::SeqCst);
        let is_replaced = self.thread.is_replaced.load(Ordering::SeqCst);
        if is_replaced {
            state.replaced -= 1;
            self.shared.watch.give_replacement_back();
        }
        is_replaced
    }
}

impl Drop for RunningReader {
    fn drop(&mut self) {
        let readers = &self.shared.readers;
        readers.lock().running.retain(|thread| !Arc::ptr_eq(thread, &self.thread));
        readers.ended.notify_all();
    }
}

/// A place for a reading connection.
struct ReaderSlot {
    store: Arc<dyn Store>,
    /// `None` before the first operation, and after a failure, until the next one opens another.
    connection: Option<Box<dyn Reader>>,
}

impl ReaderSlot {
    /// Runs the operation on a snapshot.
    fn read(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        isolate("reading", || self.retry(operation)).unwrap_or_else(|| {
            // The store panicked: its connection may be in any state, so it is dropped.
            self.connection = None;
            Err(WorkError::Panicked)
        })
    }

    /// Runs it on a second connection if the first cannot take a snapshot.
    fn retry(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let Err(error) = self.attempt(operation) else { return Ok(()) };
        self.connection = None;
        if operation.has_run() {
            // Its snapshot was good; only giving it back failed.
            tracing::warn!(%error, "a snapshot did not end as it should");
            return Ok(());
        }
        tracing::warn!(%error, "cannot take a snapshot; opening the session again");
        Ok(self.attempt(operation).inspect_err(|_| self.connection = None)?)
    }

    fn attempt(&mut self, operation: &mut dyn ReadOperation) -> Result<(), StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.store.reader()?),
        };
        // The closure's panic must not pass through the store, which holds a snapshot open.
        connection.read(&mut |txn| {
            isolate("a read operation", || operation.run(txn));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_makes_no_thread_stuck() {
        let activity = Activity::default();
        activity.begin(1);
        assert!(!activity.look(10));
        assert!(!activity.look(60_000), "stopped for a minute");
        let mut looks = (60_250..).step_by(250);
        let stuck = looks.find(|&now| activity.look(now)).unwrap();
        assert_eq!(stuck, 61_500, "it is at the operation all the same");
        assert!(activity.is_stuck() && activity.end());
    }

    #[test]
    fn an_operation_is_stuck_after_a_while_and_the_next_one_is_another() {
        let activity = Activity::default();
        for began in [1, 3_000] {
            activity.begin(began);
            let looks = (began..).step_by(250).take(8);
            assert_eq!(looks.filter(|&now| activity.look(now)).count(), 0);
            activity.end();
        }
    }
}
