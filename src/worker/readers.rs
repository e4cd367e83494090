//! Reader threads, which take operations from one shared queue. Each has its own connection; none
//! uses the writer's.
//!
//! A thread that is stuck in one operation, for example in a base that hangs, is replaced so that
//! other reads continue. Once the replacements are used up and all threads are stuck, reads are
//! refused.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::delta::{Reader, Store, StoreError};

use super::job::{QueuedRead, ReadOperation, isolate};
use super::limits::{MAX_LOOK_GAP, MAX_REPLACED_OF_SESSION, SLOW_CHECK_INTERVAL, STUCK};
use super::queue::{BatchSize, TakeOutcome};
use super::thread_watch::Moment;
use super::{WorkError, WorkerShared};
use crate::request_id::{self, RequestId};
use crate::run_queue::RunQueue;
use crate::system_error::words;

/// A reader thread takes one operation at a time and leaves the next to other threads.
const ONE: BatchSize = BatchSize { ops: 1, bytes: 0 };

/// The current operation of a thread, as the watching thread sees it.
#[derive(Default)]
pub(super) struct Activity {
    /// When the operation began; 0 if the thread is idle.
    began: AtomicU64,
    /// The `began` value that the last check saw, and the time of that check.
    seen: AtomicU64,
    looked: AtomicU64,
    /// How long checks have seen that operation, in milliseconds.
    age: AtomicU64,
    is_stuck: AtomicBool,
    /// The call that the operation is part of, if it is part of one; else 0.
    request: AtomicU64,
}

impl Activity {
    /// Records that an operation of the call `request` begins.
    pub fn begin(&self, now: Moment, request: RequestId) {
        self.request.store(request.map_or(0, NonZeroU64::get), Ordering::Relaxed);
        self.began.store(now, Ordering::SeqCst);
    }

    /// The call that the operation in progress is part of.
    pub fn request(&self) -> RequestId {
        NonZeroU64::new(self.request.load(Ordering::Relaxed))
    }

    /// Records that the operation ended; returns whether the thread counted as stuck.
    pub fn end(&self) -> bool {
        self.began.store(0, Ordering::SeqCst);
        self.is_stuck.load(Ordering::SeqCst)
    }

    /// Whether an operation is in progress.
    pub fn is_busy(&self) -> bool {
        self.began.load(Ordering::SeqCst) != 0
    }

    /// Whether the thread counts as stuck.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Marks the thread as stuck after [`STUCK`]; returns true once, at that moment. Must not be
    /// called concurrently.
    pub fn look(&self, now: Moment) -> bool {
        let began = self.began.load(Ordering::SeqCst);
        let is_long = began != 0 && self.seen_for(began, now) >= STUCK;
        if !is_long || self.is_stuck.swap(true, Ordering::SeqCst) {
            return false;
        }
        // The operation may have ended since the first load.
        let is_stuck = self.began.load(Ordering::SeqCst) == began;
        if !is_stuck {
            self.is_stuck.store(false, Ordering::SeqCst);
        }
        is_stuck
    }

    /// How long checks have seen the operation that began at `began`. A gap between two checks
    /// counts at most [`MAX_LOOK_GAP`], because the whole process may have been stopped.
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

    /// Clears the stuck mark.
    pub fn recover(&self) {
        self.is_stuck.store(false, Ordering::SeqCst);
    }
}

/// The reader threads of one session.
#[derive(Default)]
pub(super) struct ReaderThreads {
    state: Mutex<ReadersState>,
    ended: Condvar,
    /// Whether all threads, including replacements, are stuck.
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
    /// Another thread was started in its place: this one ends after its operation.
    is_replaced: AtomicBool,
}

impl ReaderThreads {
    /// Starts one thread per connection.
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

    /// Replaces stuck threads; returns whether any thread is busy.
    pub fn look(&self, shared: &Arc<WorkerShared>, now: Moment) -> bool {
        let mut state = self.lock();
        let running = state.running.clone();
        for thread in &running {
            if !thread.activity.look(now) {
                continue;
            }
            request_id::within(thread.activity.request(), || {
                tracing::warn!(name = "acetate-read", "a thread is stuck in one operation");
            });
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
        // Without any thread the queue is closed.
        let are_stuck = are_stuck && !state.running.is_empty();
        self.are_stuck.store(are_stuck, Ordering::SeqCst);
        self.ended.notify_all();
        drop(state);
        if are_stuck {
            refuse_waiting(shared);
        }
        running.iter().any(|thread| thread.activity.is_busy())
    }

    /// Waits until all threads have ended, except stuck ones.
    pub fn wait(&self) {
        let mut state = self.lock();
        while state.running.iter().any(|thread| !thread.activity.is_stuck()) {
            self.ended.wait_for(&mut state, SLOW_CHECK_INTERVAL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadersState> {
        self.state.lock()
    }
}

impl ReadersState {
    /// Starts one more thread. Without a connection the thread opens its own.
    fn start(
        &mut self,
        shared: &Arc<WorkerShared>,
        connection: Option<Box<dyn Reader>>,
    ) -> Result<(), StoreError> {
        let thread = Arc::new(ReaderThread::default());
        let running = RunningReader { shared: Arc::clone(shared), thread: Arc::clone(&thread) };
        let closed = || StoreError::io("the session is closed");
        let place = ReaderSlot { store: shared.store.upgrade().ok_or_else(closed)?, connection };
        let name = format!("acetate-read-{}", self.started);
        // The thread removes itself from the list, which is locked until it is added.
        self.running.push(thread);
        self.started += 1;
        let started = thread::Builder::new().name(name).spawn(move || running.serve(place));
        match started {
            Ok(_) => Ok(()),
            Err(error) => {
                self.running.pop();
                let text = format!("cannot start a reader thread: {}", words(&error));
                Err(StoreError::io(text).with_source(error))
            }
        }
    }
}

/// Fails all queued reads, because no thread can take them.
fn refuse_waiting(shared: &WorkerShared) {
    let mut reads = Vec::new();
    let cost = shared.reads.take_all(&mut reads);
    for read in reads {
        isolate("answering a read", || read.answer(Err(WorkError::Stuck)));
    }
    shared.reads.release(cost);
}

/// A running reader thread.
struct RunningReader {
    shared: Arc<WorkerShared>,
    thread: Arc<ReaderThread>,
}

impl RunningReader {
    /// Serves the queue until it is closed and empty, or until this thread was replaced.
    fn serve(self, mut place: ReaderSlot) {
        let woken = RunQueue::open();
        let shared = &self.shared;
        shared.executor.open_readers(&place.store);
        let mut taken: Vec<Box<dyn QueuedRead>> = Vec::with_capacity(ONE.ops);
        while let TakeOutcome::Items(cost) = shared.reads.take(&mut taken, ONE, None, |_, _| false)
        {
            let request = taken.first_mut().and_then(|read| read.operation().request());
            self.thread.activity.begin(shared.watch.now(), request);
            shared.watch.wake();
            for mut read in taken.drain(..) {
                request_id::within(request, || {
                    let outcome = place.read(read.operation());
                    isolate("answering a read", || read.answer(outcome));
                });
            }
            shared.reads.release(cost);
            woken.drain();
            if self.thread.activity.end() && self.was_replaced() {
                break;
            }
            shared.executor.open_readers(&place.store);
        }
        // Before the thread counts as ended: then the session is closed and the process may exit.
        drop(place);
    }

    /// Clears the stuck mark; returns whether another thread replaced this one.
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

/// The connection of one reader thread.
struct ReaderSlot {
    store: Arc<dyn Store>,
    /// `None` before the first operation and after a failure; the next operation opens one.
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

    /// Runs the operation; reconnects and retries once if no snapshot can be taken.
    fn retry(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let Err(error) = self.attempt(operation) else { return Ok(()) };
        self.connection = None;
        if operation.has_run() {
            // The operation had a snapshot; only releasing it failed.
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
        // The closure's panic must not unwind through the store, which has a snapshot open.
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
        activity.begin(1, None);
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
            activity.begin(began, None);
            let looks = (began..).step_by(250).take(8);
            assert_eq!(looks.filter(|&now| activity.look(now)).count(), 0);
            activity.end();
        }
    }
}
