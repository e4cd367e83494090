//! Watches the threads of one server: bounds inline work on the runtime's threads, and detects
//! held-up ones.
//!
//! Inline work may block on a base that hangs or a disk that stalls. The blocked thread may be the
//! one that polls the sockets, timers and signals. No other thread then polls: tokio wakes another
//! one only if there is more than one task. So a watching thread checks every few milliseconds
//! while inline work runs, and spawns an empty task when a thread is held up. The thread that wakes
//! for the task polls from then on. Without work the watching thread sleeps
//! (docs/decisions/0040-no-blocking-on-network-threads.md).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::limits::{
    HELD_UP, QUICK_CHECK_INTERVAL, QUIET_TIME, SLOW_CHECK_INTERVAL, STEADY_CHECK_INTERVAL,
};
use crate::run_queue::RunQueue;

thread_local! {
    /// The slot that this thread last used: it is probably free and in this core's cache.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

/// A time in milliseconds since the watch was created, plus 1; never 0.
pub(super) type Moment = u64;

/// The watch that all workers of one server share.
pub struct ThreadWatch {
    began: Instant,
    /// When the inline work in each slot began; 0 for a free slot.
    slots: Box<[InlineSlot]>,
    /// Whether inline work began since the last check.
    is_active: AtomicBool,
    pools: Mutex<Vec<Weak<dyn WatchedPool>>>,
    workers: Mutex<Vec<Weak<dyn WatchedWorker>>>,
    /// When the workers were last checked.
    workers_seen: AtomicU64,
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Aligned to a cache line, against false sharing.
#[repr(align(64))]
#[derive(Default)]
struct InlineSlot(AtomicU64);

/// A pool whose threads are watched.
pub(super) trait WatchedPool: Send + Sync {
    /// Checks the threads; returns the interval until the next check. `None` if all are idle.
    fn look(self: Arc<Self>, now: Moment) -> Option<Duration>;
}

/// A worker whose writer is watched, wherever it runs.
pub(super) trait WatchedWorker: Send + Sync {
    /// Checks whether the writer is stuck.
    fn look(&self, now: Moment);
}

/// A permit for inline work on a thread of the runtime.
pub(super) struct InlinePermit<'a> {
    slot: &'a InlineSlot,
    /// When the work began.
    pub began: Moment,
}

impl Drop for InlinePermit<'_> {
    fn drop(&mut self) {
        self.slot.0.store(0, Ordering::Release);
    }
}

/// The interval until the next check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Inline work starts and ends.
    Quick,
    /// A thread of the pool works.
    Steady,
    /// Only long operations are in progress.
    Slow,
    /// Nothing is in progress.
    Quiet,
}

impl ThreadWatch {
    /// Permits up to `inline` threads of `runtime` to run inline work at once. `inline` should be
    /// at least two below the number of the runtime's threads.
    pub fn new(inline: usize, runtime: Option<Handle>) -> Arc<Self> {
        let watch = Arc::new(Self {
            began: Instant::now(),
            slots: std::iter::repeat_with(InlineSlot::default).take(inline).collect(),
            is_active: AtomicBool::new(false),
            pools: Mutex::default(),
            workers: Mutex::default(),
            workers_seen: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let weak = Arc::downgrade(&watch);
        let thread = thread::Builder::new().name("acetate-watch".to_owned());
        match thread.spawn(move || keep_watch(&weak, runtime.as_ref())) {
            Ok(handle) => drop(watch.thread.set(handle.thread().clone())),
            Err(error) => tracing::error!(
                %error,
                "cannot start thread acetate-watch: blocked network threads will not be detected"
            ),
        }
        watch
    }

    /// The current time.
    pub(super) fn now(&self) -> Moment {
        Moment::try_from(self.began.elapsed().as_millis()).unwrap_or(Moment::MAX).saturating_add(1)
    }

    /// A permit for inline work on the current thread, unless all are taken.
    pub(super) fn begin_inline(&self) -> Option<InlinePermit<'_>> {
        let (began, last) = (self.now(), LAST_SLOT.get());
        for at in (0..self.slots.len()).map(|at| (last + at) % self.slots.len()) {
            let slot = &self.slots[at];
            let take = |slot: &InlineSlot| {
                slot.0.compare_exchange(0, began, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            };
            if slot.0.load(Ordering::Relaxed) == 0 && take(slot) {
                LAST_SLOT.set(at);
                if !self.is_active.load(Ordering::Relaxed) {
                    self.is_active.store(true, Ordering::Relaxed);
                }
                self.wake();
                return Some(InlinePermit { slot, began });
            }
        }
        None
    }

    /// Wakes the watching thread if it sleeps, because work began.
    pub(super) fn wake(&self) {
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Also watches the threads of `pool` while it exists.
    pub(super) fn add_pool(&self, pool: Weak<dyn WatchedPool>) {
        self.pools.lock().push(pool);
    }

    /// Also watches the writer of `worker` while it exists.
    pub(super) fn add(&self, worker: Weak<dyn WatchedWorker>) {
        let mut workers = self.workers.lock();
        if workers.len() == workers.capacity() {
            workers.retain(|worker| worker.strong_count() > 0);
        }
        workers.push(worker);
    }

    /// Checks all work in progress; wakes another thread of the runtime if one is held up.
    fn look(&self, held_up_before: &mut usize, runtime: Option<&Handle>) -> Pace {
        let now = self.now();
        let mut pace = Pace::Quiet;
        let mut held_up = 0;
        for slot in &self.slots {
            let began = slot.0.load(Ordering::Relaxed);
            if began == 0 {
                continue;
            }
            let age = Duration::from_millis(now.saturating_sub(began));
            held_up += usize::from(age >= HELD_UP);
            pace =
                if age >= SLOW_CHECK_INTERVAL || pace == Pace::Quick { pace } else { Pace::Quick };
            pace = if pace == Pace::Quiet { Pace::Slow } else { pace };
        }
        if self.is_active.swap(false, Ordering::Relaxed) {
            pace = Pace::Quick;
        }
        // Repeated while the work is recent, because the woken thread may be held up too.
        if held_up > *held_up_before || (held_up > 0 && pace == Pace::Quick) {
            runtime.map(|runtime| runtime.spawn(async {}));
        }
        *held_up_before = held_up;
        self.look_at_workers(now);
        let pools: Vec<_> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        let wanted = pools.into_iter().filter_map(|pool| pool.look(now)).min();
        match wanted {
            Some(interval) if interval < SLOW_CHECK_INTERVAL && pace != Pace::Quick => Pace::Steady,
            Some(_) if pace == Pace::Quiet => Pace::Slow,
            _ => pace,
        }
    }

    /// Checks the writers, which are as many as the sessions, at longer intervals.
    fn look_at_workers(&self, now: Moment) {
        let seen = self.workers_seen.load(Ordering::Relaxed);
        if Duration::from_millis(now.saturating_sub(seen)) >= SLOW_CHECK_INTERVAL {
            self.workers_seen.store(now, Ordering::Relaxed);
            let workers: Vec<_> = self.workers.lock().iter().filter_map(Weak::upgrade).collect();
            workers.into_iter().for_each(|worker| worker.look(now));
        }
    }
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        self.unpark();
    }
}

/// Checks periodically until the watch is dropped.
fn keep_watch(watch: &Weak<ThreadWatch>, runtime: Option<&Handle>) {
    // Calls are answered here when all other threads are stuck.
    let woken = RunQueue::open();
    let (mut held_up, mut calm_since, mut slept) = (0, None, false);
    while let Some(now) = watch.upgrade() {
        let was_woken = slept && !now.is_asleep.swap(false, Ordering::SeqCst);
        if was_woken {
            // More work is likely: checks are cheaper than to be woken for each piece.
            calm_since = None;
        }
        slept = false;
        let mut pace = now.look(&mut held_up, runtime);
        let since = *calm_since.get_or_insert_with(Instant::now);
        if pace == Pace::Quick {
            calm_since = None;
        } else if since.elapsed() < QUIET_TIME {
            pace = Pace::Quick;
        } else {
            // Work that begins from here on wakes this thread; this check sees earlier work.
            now.is_asleep.store(true, Ordering::SeqCst);
            slept = true;
            pace = now.look(&mut held_up, runtime);
        }
        drop(now);
        woken.drain();
        match pace {
            Pace::Quick => thread::sleep(QUICK_CHECK_INTERVAL),
            Pace::Steady => thread::park_timeout(STEADY_CHECK_INTERVAL),
            Pace::Slow => thread::park_timeout(SLOW_CHECK_INTERVAL),
            Pace::Quiet => thread::park(),
        }
    }
}
