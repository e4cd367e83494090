//! The queue and the threads of a pool, under its lock.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};

use super::{PooledSession, SliceKind};
use crate::delta::BackgroundWork;
use crate::request_id::RequestId;
use crate::worker::limits::{HELD, MAX_BACKGROUND_RUNS, MAX_LOOK_GAP, MAX_REPLACED_THREADS, STUCK};
use crate::worker::thread_watch::Moment;

/// Work for a thread.
pub(super) enum PoolWork {
    /// A slice of a session.
    Slice(Arc<dyn PooledSession>, SliceKind),
    /// Work beside a session's writer.
    Background(BackgroundWork),
}

/// Work that a thread has done.
pub(super) enum FinishedWork {
    /// A slice; `Some` if the session wants another one.
    Slice(Option<(Arc<dyn PooledSession>, SliceKind)>),
    /// Work beside a session's writer.
    Background,
}

/// The thread that runs new work.
pub(super) enum WakeUp {
    /// One that sleeps.
    Sleeper(Arc<Sleeper>),
    /// A new one, with its index.
    NewThread(usize),
}

/// Where an idle thread sleeps.
#[derive(Default)]
pub(super) struct Sleeper {
    condvar: Condvar,
    /// Set under the pool's lock, when the thread leaves the idle ones.
    is_woken: AtomicBool,
}

impl Sleeper {
    /// Whether the thread was taken from the idle ones; it then has to
    /// [arrive](PoolState::arrive).
    pub fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Relaxed)
    }

    /// Wakes the thread.
    pub fn notify(&self) {
        self.condvar.notify_one();
    }

    /// Waits to be notified, at most until `until`; returns whether that time came first.
    pub fn wait(&self, state: &mut MutexGuard<'_, PoolState>, until: Option<Instant>) -> bool {
        match until {
            Some(at) => self.condvar.wait_until(state, at).timed_out(),
            None => {
                self.condvar.wait(state);
                false
            }
        }
    }
}

/// Which slice a thread runs, and whether that slice counts as stuck.
#[derive(Default)]
pub(in crate::worker) struct SliceMark {
    state: AtomicU64,
    /// The call that the slice is part of, if it is part of one; else 0.
    request: AtomicU64,
}

impl SliceMark {
    /// Begins slice number `serial`.
    fn begin(&self, serial: u64) {
        self.request.store(0, Ordering::Relaxed);
        self.state.store(serial << 1, Ordering::SeqCst);
    }

    /// Records the call that the slice is part of.
    pub fn note_request(&self, request: RequestId) {
        self.request.store(request.map_or(0, NonZeroU64::get), Ordering::Relaxed);
    }

    /// That call.
    pub fn request(&self) -> RequestId {
        NonZeroU64::new(self.request.load(Ordering::Relaxed))
    }

    /// Marks slice `serial` as stuck; `false` if it has ended.
    pub fn set_stuck(&self, serial: u64) -> bool {
        let (running, stuck) = (serial << 1, serial << 1 | 1);
        self.state.compare_exchange(running, stuck, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the slice; returns whether it was stuck.
    pub fn end(&self) -> bool {
        self.state.swap(0, Ordering::SeqCst) & 1 == 1
    }
}

/// Work that a thread is doing.
struct RunningWork {
    /// `None` for work beside a writer. Weak: an idle thread must keep no session, and the last
    /// reference to one must not be dropped under the lock.
    slice: Option<(Weak<dyn PooledSession>, SliceKind)>,
    serial: u64,
    /// When it was last looked at; 0 before.
    looked: Moment,
    /// How long it has been seen.
    age: Duration,
    is_held: bool,
    is_stuck: bool,
}

/// A slice that has become stuck.
pub(super) struct StuckSlice {
    pub session: Weak<dyn PooledSession>,
    pub kind: SliceKind,
    pub mark: Arc<SliceMark>,
    pub serial: u64,
}

/// What a look at the threads found.
pub(super) struct SeenThreads {
    pub stuck: Vec<StuckSlice>,
    /// Whether any thread works.
    pub is_busy: bool,
    /// Whether any of them is not held up yet.
    pub is_recent: bool,
}

/// A timer that is due: its time, and the session to call.
pub(super) type DueTimer = (Instant, Weak<dyn PooledSession>);

#[derive(Default)]
struct PoolThread {
    exists: bool,
    mark: Arc<SliceMark>,
    running: Option<RunningWork>,
}

/// See the module.
pub(super) struct PoolState {
    queue: VecDeque<PoolWork>,
    /// Idle threads; the last one wakes first, the first one keeps the timers.
    idle: Vec<Arc<Sleeper>>,
    /// Threads that were woken or started for queued work, and have not looked at the queue yet.
    coming: usize,
    threads: Vec<PoolThread>,
    live: usize,
    /// The number of threads while none is held up.
    wanted: usize,
    held: usize,
    serial: u64,
    /// By time, and a number that makes keys differ.
    timers: BTreeMap<(Instant, u64), Weak<dyn PooledSession>>,
    timer_serial: u64,
    background_runs: usize,
    background_waiting: VecDeque<BackgroundWork>,
    is_ended: bool,
}

impl PoolState {
    /// A pool of `threads` threads, none started.
    pub fn new(threads: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            idle: Vec::new(),
            coming: 0,
            threads: Vec::new(),
            live: 0,
            wanted: threads,
            held: 0,
            serial: 0,
            timers: BTreeMap::new(),
            timer_serial: 0,
            background_runs: 0,
            background_waiting: VecDeque::new(),
            is_ended: false,
        }
    }

    /// The number of threads.
    #[cfg(feature = "internals")]
    pub fn live(&self) -> usize {
        self.live
    }

    /// How many threads there may be.
    fn max_live(&self) -> usize {
        self.wanted + self.held.min(MAX_REPLACED_THREADS)
    }

    /// Whether the caller's thread is one too many.
    pub fn has_too_many(&self) -> bool {
        self.live > self.max_live()
    }

    /// Whether the threads end once the queue is empty.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Appends work.
    pub fn push(&mut self, work: PoolWork) {
        self.queue.push_back(work);
    }

    /// A thread for queued work; `None` if enough are coming, or all are there and busy.
    pub fn wake_one(&mut self) -> Option<WakeUp> {
        if self.coming >= self.queue.len() {
            return None;
        }
        if let Some(sleeper) = self.idle.pop() {
            sleeper.is_woken.store(true, Ordering::Relaxed);
            self.coming += 1;
            return Some(WakeUp::Sleeper(sleeper));
        }
        (self.live < self.max_live()).then(|| self.start())
    }

    /// The first thread, if there is none.
    pub fn start_first(&mut self) -> Option<WakeUp> {
        (self.live == 0).then(|| self.start())
    }

    fn start(&mut self) -> WakeUp {
        let free = self.threads.iter().position(|thread| !thread.exists);
        let at = free.unwrap_or_else(|| {
            self.threads.push(PoolThread::default());
            self.threads.len() - 1
        });
        self.threads[at].exists = true;
        self.live += 1;
        self.coming += 1;
        WakeUp::NewThread(at)
    }

    /// A thread that was started or woken for work looks at the queue now.
    pub fn arrive(&mut self) {
        self.coming -= 1;
    }

    /// Removes a thread that works on nothing.
    pub fn remove_thread(&mut self, at: usize) {
        self.threads[at].exists = false;
        self.live -= 1;
    }

    /// Takes the first work for thread `at`.
    pub fn take(&mut self, at: usize) -> Option<(PoolWork, Arc<SliceMark>)> {
        let work = self.queue.pop_front()?;
        self.serial += 1;
        let slice = match &work {
            PoolWork::Slice(session, kind) => Some((Arc::downgrade(session), *kind)),
            PoolWork::Background(_) => None,
        };
        let thread = &mut self.threads[at];
        thread.mark.begin(self.serial);
        thread.running = Some(RunningWork {
            slice,
            serial: self.serial,
            looked: 0,
            age: Duration::ZERO,
            is_held: false,
            is_stuck: false,
        });
        Some((work, Arc::clone(&thread.mark)))
    }

    /// Records that thread `at` has done its work.
    pub fn finish(&mut self, at: usize, finished: FinishedWork) {
        let running = self.threads[at].running.take();
        self.held -= usize::from(running.is_some_and(|running| running.is_held));
        match finished {
            FinishedWork::Slice(None) => {}
            FinishedWork::Slice(Some((session, kind))) => {
                self.queue.push_back(PoolWork::Slice(session, kind));
            }
            FinishedWork::Background => {
                self.background_runs -= 1;
                if let Some(next) = self.background_waiting.pop_front() {
                    self.background_runs += 1;
                    self.queue.push_back(PoolWork::Background(next));
                }
            }
        }
    }

    /// Adds a thread that finds no work to the idle ones.
    pub fn lie_down(&mut self, sleeper: &Arc<Sleeper>) {
        sleeper.is_woken.store(false, Ordering::Relaxed);
        self.idle.push(Arc::clone(sleeper));
    }

    /// When the idle thread must wake for a timer; `None` if another one keeps them.
    pub fn timer_of(&self, sleeper: &Arc<Sleeper>) -> Option<Instant> {
        let keeps_timers = self.idle.first().is_some_and(|first| Arc::ptr_eq(first, sleeper));
        let first = self.timers.first_key_value().map(|((at, _), _)| *at);
        first.filter(|_| keeps_timers)
    }

    /// Adds a timer. Returns the thread that keeps them, if it must look at them again.
    pub fn set_timer(
        &mut self,
        at: Instant,
        session: Weak<dyn PooledSession>,
    ) -> Option<Arc<Sleeper>> {
        let is_first = self.timers.first_key_value().is_none_or(|((first, _), _)| at < *first);
        self.timer_serial += 1;
        self.timers.insert((at, self.timer_serial), session);
        self.idle.first().filter(|_| is_first).map(Arc::clone)
    }

    /// Removes the timers that are due.
    pub fn take_due(&mut self) -> Vec<DueTimer> {
        let mut due = Vec::new();
        if self.timers.is_empty() {
            return due;
        }
        let now = Instant::now();
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            due.push((first.key().0, first.remove()));
        }
        due
    }

    fn max_background_runs(&self) -> usize {
        MAX_BACKGROUND_RUNS.min(self.wanted / 2).max(1)
    }

    /// Returns work beside a writer that may be queued now; otherwise it waits for other such work.
    pub fn admit_background(&mut self, work: BackgroundWork) -> Option<BackgroundWork> {
        if self.background_runs < self.max_background_runs() {
            self.background_runs += 1;
            return Some(work);
        }
        self.background_waiting.push_back(work);
        None
    }

    /// Whether one more work beside a writer may be queued now.
    ///
    /// Never before one that waits: the early syncs of a session run as long as its WAL checkpoint,
    /// which must not wait for them.
    pub fn admit_background_now(&mut self) -> bool {
        let is_free = self.background_runs < self.max_background_runs();
        let is_admitted = is_free && self.background_waiting.is_empty();
        self.background_runs += usize::from(is_admitted);
        is_admitted
    }

    /// Looks how long each thread has been at its work. A gap between two looks counts at most
    /// [`MAX_LOOK_GAP`], because the whole process may have been stopped.
    pub fn look(&mut self, now: Moment) -> SeenThreads {
        let mut seen = SeenThreads { stuck: Vec::new(), is_busy: false, is_recent: false };
        for PoolThread { mark, running, .. } in &mut self.threads {
            let Some(running) = running else { continue };
            if running.looked != 0 {
                let gap = Duration::from_millis(now.saturating_sub(running.looked));
                running.age += gap.min(MAX_LOOK_GAP);
            }
            running.looked = now;
            if running.age >= HELD && !running.is_held {
                running.is_held = true;
                self.held += 1;
            }
            if running.age >= STUCK
                && !running.is_stuck
                && let Some((session, kind)) = &running.slice
            {
                running.is_stuck = true;
                let (session, mark) = (Weak::clone(session), Arc::clone(mark));
                seen.stuck.push(StuckSlice { session, kind: *kind, mark, serial: running.serial });
            }
            seen.is_busy = true;
            seen.is_recent |= !running.is_held;
        }
        seen
    }

    /// Lets the threads end. Returns the idle ones, to notify them, and what to drop without the
    /// lock.
    pub fn end(&mut self) -> (Vec<Arc<Sleeper>>, VecDeque<BackgroundWork>) {
        self.is_ended = true;
        let sleepers = std::mem::take(&mut self.idle);
        self.coming += sleepers.len();
        for sleeper in &sleepers {
            sleeper.is_woken.store(true, Ordering::Relaxed);
        }
        (sleepers, std::mem::take(&mut self.background_waiting))
    }
}
