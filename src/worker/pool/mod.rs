//! The threads that all sessions of a server share (docs/decisions/0066-shared-threads.md).
//!
//! A session's work comes in *slices*: one batch of changes, or one read. A slice that becomes due
//! waits at the end of one queue for all sessions, and is queued again if the session has more to
//! do. So a session that floods its own queue gets no more than its share.
//!
//! Idle threads sleep in a stack: the last one to fall asleep wakes first, because its core's
//! caches are warm and its processor is awake.
//!
//! A slice that takes 100 ms ([`HELD`](super::limits::HELD)) is held up, by a base that hangs or a
//! disk that stalls: its thread does not count any more, and another one is started in its place.

mod state;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{BackgroundThreads, BackgroundWork, StoreError};
use crate::request_id;
use crate::run_queue::RunQueue;
use crate::system_error::words;

use super::job::isolate;
use super::limits::{MAX_REPLACED_THREADS, SLOW_CHECK_INTERVAL, STEADY_CHECK_INTERVAL};
use super::thread_watch::{Moment, ThreadWatch, WatchedPool};

pub(super) use state::SliceMark;
use state::{DueTimer, FinishedWork, PoolState, PoolWork, Sleeper, WakeUp};

/// What a slice does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceKind {
    /// One batch of changes, and maintenance that is due.
    Write,
    /// One read.
    Read,
}

/// A session that uses the pool.
pub(super) trait PooledSession: Send + Sync {
    /// Runs a slice; returns whether to queue another one of this kind. Catches panics.
    fn run_slice(self: Arc<Self>, kind: SliceKind, woken: &RunQueue, mark: &SliceMark) -> bool;

    /// A slice has taken [`STUCK`](super::limits::STUCK), if it is still running `serial` of
    /// `mark`.
    fn note_stuck(self: Arc<Self>, kind: SliceKind, mark: &SliceMark, serial: u64);

    /// The time `at` of [`WorkerPool::set_timer`] has come.
    fn tick(self: Arc<Self>, at: Instant);
}

/// The threads of one server. They end when the last handle is dropped and all work is done.
pub struct WorkerPool {
    core: Arc<PoolCore>,
}

/// What the threads share with the handles.
struct PoolCore {
    state: Mutex<PoolState>,
    /// The number of further stuck slices whose session may run others in their place.
    replacements: AtomicUsize,
    watch: Arc<ThreadWatch>,
}

impl WorkerPool {
    /// A pool of up to `threads` threads, and of [`MAX_REPLACED_THREADS`] more while as many are
    /// held up. `watch` looks at them. No thread is started yet.
    pub fn new(threads: usize, watch: Arc<ThreadWatch>) -> Arc<Self> {
        let state = Mutex::new(PoolState::new(threads.max(1)));
        let replacements = AtomicUsize::new(MAX_REPLACED_THREADS);
        let core = Arc::new(PoolCore { state, replacements, watch });
        let watched: Weak<PoolCore> = Arc::downgrade(&core);
        core.watch.add_pool(watched);
        Arc::new(Self { core })
    }

    /// The watch that looks at these threads.
    pub(super) fn watch(&self) -> &Arc<ThreadWatch> {
        &self.core.watch
    }

    /// The number of threads that exist.
    #[cfg(feature = "internals")]
    pub fn threads(&self) -> usize {
        self.core.lock().live()
    }

    /// Starts a thread if there is none.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn ensure_thread(&self) -> Result<(), StoreError> {
        let first = self.core.lock().start_first();
        first.map_or(Ok(()), |wake| self.core.wake(wake))
    }

    /// Queues a slice. The session makes sure that it has no more of them than it may.
    pub(super) fn schedule(&self, session: Arc<dyn PooledSession>, kind: SliceKind) {
        self.core.add(PoolWork::Slice(session, kind));
    }

    /// Calls [`PooledSession::tick`] at `at`, if the session exists then.
    pub(super) fn set_timer(&self, at: Instant, session: Weak<dyn PooledSession>) {
        let keeper = self.core.lock().set_timer(at, session);
        if let Some(keeper) = keeper {
            keeper.notify();
        }
    }

    /// Takes a permit to run one more slice of a session beside a stuck one, if one is left.
    pub(super) fn take_replacement(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        let taken = &self.core.replacements;
        taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Returns such a permit.
    pub(super) fn give_replacement_back(&self) {
        self.core.replacements.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let (sleepers, dropped) = self.core.lock().end();
        sleepers.iter().for_each(|sleeper| sleeper.notify());
        drop(dropped);
    }
}

impl BackgroundThreads for WorkerPool {
    fn run(&self, work: BackgroundWork) -> bool {
        let ready = self.core.lock().admit_background(work);
        if let Some(work) = ready {
            self.core.add(PoolWork::Background(work));
        }
        true
    }

    fn run_now(&self, work: BackgroundWork) -> bool {
        let is_admitted = self.core.lock().admit_background_now();
        if is_admitted {
            self.core.add(PoolWork::Background(work));
        }
        is_admitted
    }
}

impl PoolCore {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Queues work, and wakes or starts a thread for it unless enough are coming.
    fn add(self: &Arc<Self>, work: PoolWork) {
        let wake = {
            let mut state = self.lock();
            state.push(work);
            state.wake_one()
        };
        if let Some(wake) = wake {
            // Logged there; the work waits for a thread that is there.
            let _ = self.wake(wake);
        }
    }

    fn wake(self: &Arc<Self>, wake: WakeUp) -> Result<(), StoreError> {
        let at = match wake {
            WakeUp::Sleeper(sleeper) => {
                sleeper.notify();
                return Ok(());
            }
            WakeUp::NewThread(at) => at,
        };
        let core = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("acetate-work-{at}"));
        let started = thread.spawn(move || core.serve(at));
        started.map(drop).map_err(|error| {
            let mut state = self.lock();
            state.arrive();
            state.remove_thread(at);
            drop(state);
            tracing::warn!(%error, "cannot start a thread for sessions");
            let text = format!("cannot start a thread for sessions: {}", words(&error));
            StoreError::io(text).with_source(error)
        })
    }

    /// Runs work until the thread is not needed any more.
    fn serve(self: Arc<Self>, at: usize) {
        let woken = RunQueue::open();
        let sleeper = Arc::new(Sleeper::default());
        self.lock().arrive();
        let mut finished = None;
        while let Some((work, mark)) = self.next(at, finished.take(), &sleeper) {
            self.watch.wake();
            finished = Some(match work {
                PoolWork::Slice(session, kind) => {
                    let again = Arc::clone(&session).run_slice(kind, &woken, &mark);
                    FinishedWork::Slice(again.then_some((session, kind)))
                }
                PoolWork::Background(work) => {
                    isolate("work beside a writer", work);
                    FinishedWork::Background
                }
            });
        }
    }

    /// Ends the thread's work, and waits for more. `None` ends the thread.
    fn next(
        self: &Arc<Self>,
        at: usize,
        finished: Option<FinishedWork>,
        sleeper: &Arc<Sleeper>,
    ) -> Option<(PoolWork, Arc<SliceMark>)> {
        let mut state = self.lock();
        if let Some(finished) = finished {
            state.finish(at, finished);
        }
        loop {
            let due = state.take_due();
            if !due.is_empty() {
                MutexGuard::unlocked(&mut state, || tick_all(due));
                continue;
            }
            if state.has_too_many() {
                break;
            }
            if let Some(work) = state.take(at) {
                return Some(work);
            }
            if state.is_ended() {
                break;
            }
            Self::sleep(&mut state, sleeper);
        }
        state.remove_thread(at);
        let wake = state.wake_one();
        drop(state);
        if let Some(wake) = wake {
            let _ = self.wake(wake);
        }
        None
    }

    /// Sleeps as an idle thread until it is woken for work.
    fn sleep(state: &mut MutexGuard<'_, PoolState>, sleeper: &Arc<Sleeper>) {
        state.lie_down(sleeper);
        while !sleeper.is_woken() {
            let until = state.timer_of(sleeper);
            if sleeper.wait(state, until) {
                // It stays idle: a session may wake this thread for what is due.
                let due = state.take_due();
                MutexGuard::unlocked(state, || tick_all(due));
            }
        }
        state.arrive();
    }
}

/// Calls the sessions whose timers are due. The caller must not hold the pool's lock.
fn tick_all(due: Vec<DueTimer>) {
    for (at, session) in due {
        if let Some(session) = session.upgrade() {
            session.tick(at);
        }
    }
}

impl WatchedPool for PoolCore {
    /// Starts threads in place of those that are held up, and reports stuck slices.
    fn look(self: Arc<Self>, now: Moment) -> Option<Duration> {
        let (seen, due, wakes) = {
            let mut state = self.lock();
            let seen = state.look(now);
            // If no thread is there to do it.
            let due = state.take_due();
            let wakes: Vec<_> = std::iter::from_fn(|| state.wake_one()).collect();
            (seen, due, wakes)
        };
        for wake in wakes {
            let _ = self.wake(wake);
        }
        tick_all(due);
        for stuck in seen.stuck {
            // A writer is watched wherever it runs: its session says so.
            if stuck.kind == SliceKind::Read {
                request_id::within(stuck.mark.request(), || {
                    tracing::warn!("a read has been in one operation for 2 s");
                });
            }
            if let Some(session) = stuck.session.upgrade() {
                session.note_stuck(stuck.kind, &stuck.mark, stuck.serial);
            }
        }
        match (seen.is_recent, seen.is_busy) {
            (true, _) => Some(STEADY_CHECK_INTERVAL),
            (false, true) => Some(SLOW_CHECK_INTERVAL),
            (false, false) => None,
        }
    }
}
