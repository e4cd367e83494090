//! The threads of one server: how many of the runtime's may run light work, and which are held up.
//!
//! Light work may block: a base may hang, a disk may stall. A thread of the runtime that blocks
//! can be the one that polls the sockets, the timers and the signals, and then no other thread
//! does: tokio wakes another one only where there is more than one task. So a thread of ours
//! looks every few milliseconds while light work is under way, and gives the runtime an empty
//! task when a thread is held up: the thread that wakes for the task polls from then on.
//! Without work the watching thread sleeps (docs/decisions/0040-what-may-block-whom.md).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use super::limits::{HELD_UP, MAX_REPLACED_THREADS, QUICK_LOOK, QUIET_TIME, SLOW_LOOK};
use super::threads;

thread_local! {
    /// The slot that this thread had last: it is likely to be free, and in this core's cache.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

/// A moment, in milliseconds since the watch began; never 0.
pub(super) type Moment = u64;

/// What all workers of one server share.
pub struct ThreadWatch {
    began: Instant,
    /// When the light work in each slot began; 0 where there is none.
    slots: Box<[InlineSlot]>,
    /// Whether light work began since the last look.
    is_active: AtomicBool,
    workers: Mutex<Vec<Weak<dyn WatchedWorker>>>,
    /// How many more stuck threads can be replaced.
    replacements: AtomicUsize,
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// In a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct InlineSlot(AtomicU64);

/// A worker whose threads are watched.
pub(super) trait WatchedWorker: Send + Sync {
    /// Looks at the worker's threads; whether any of them is at work.
    fn look(self: Arc<Self>, now: Moment) -> bool;
}

/// The right to run light work on a thread of the runtime.
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

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Light work comes and goes.
    Quick,
    /// What is under way has been so for long.
    Slow,
    /// Nothing is under way.
    Quiet,
}

impl ThreadWatch {
    /// Lets `inline` threads of `runtime` run light work at a time. Of the runtime's threads that
    /// should leave two.
    pub fn new(inline: usize, runtime: Option<Handle>) -> Arc<Self> {
        let watch = Arc::new(Self {
            began: Instant::now(),
            slots: std::iter::repeat_with(InlineSlot::default).take(inline).collect(),
            is_active: AtomicBool::new(false),
            workers: Mutex::default(),
            replacements: AtomicUsize::new(MAX_REPLACED_THREADS),
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

    /// The moment now.
    pub(super) fn now(&self) -> Moment {
        Moment::try_from(self.began.elapsed().as_millis()).unwrap_or(Moment::MAX).saturating_add(1)
    }

    /// Lets the current thread run light work, unless enough threads do.
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

    /// Makes the watching thread look, if it sleeps: work has begun.
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

    /// Watches a worker's threads, too, as long as there is one.
    pub(super) fn add(&self, worker: Weak<dyn WatchedWorker>) {
        let mut workers = self.workers();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(worker);
    }

    /// Takes the right to replace a stuck thread, if there is one left.
    pub(super) fn take_replacement(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.replacements.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Gives that right back.
    pub(super) fn give_replacement_back(&self) {
        self.replacements.fetch_add(1, Ordering::AcqRel);
    }

    /// Looks at all that is under way.
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
            pace = if age >= SLOW_LOOK || pace == Pace::Quick { pace } else { Pace::Quick };
            pace = if pace == Pace::Quiet { Pace::Slow } else { pace };
        }
        if self.is_active.swap(false, Ordering::Relaxed) {
            pace = Pace::Quick;
        }
        // Each time while it is recent, as the thread that woke may be held up as well.
        if held_up > *held_up_before || (held_up > 0 && pace == Pace::Quick) {
            runtime.map(|runtime| runtime.spawn(async {}));
        }
        *held_up_before = held_up;
        let workers: Vec<_> = self.workers().iter().filter_map(Weak::upgrade).collect();
        let is_busy = workers.into_iter().fold(false, |busy, worker| worker.look(now) | busy);
        if is_busy && pace == Pace::Quiet { Pace::Slow } else { pace }
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Weak<dyn WatchedWorker>>> {
        self.workers.lock()
    }
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        self.unpark();
    }
}

/// Looks again and again until the watch is gone.
fn keep_watch(watch: &Weak<ThreadWatch>, runtime: Option<&Handle>) {
    // Calls that are answered from here do not block it.
    threads::join();
    let (mut held_up, mut calm_since) = (0, None);
    while let Some(now) = watch.upgrade() {
        now.is_asleep.store(false, Ordering::SeqCst);
        let mut pace = now.look(&mut held_up, runtime);
        let since = *calm_since.get_or_insert_with(Instant::now);
        if pace == Pace::Quick {
            calm_since = None;
        } else if since.elapsed() < QUIET_TIME {
            pace = Pace::Quick;
        } else {
            // Work that begins from here on ends the wait; what began before is seen now.
            now.is_asleep.store(true, Ordering::SeqCst);
            pace = now.look(&mut held_up, runtime);
        }
        drop(now);
        match pace {
            Pace::Quick => thread::sleep(QUICK_LOOK),
            Pace::Slow => thread::park_timeout(SLOW_LOOK),
            Pace::Quiet => thread::park(),
        }
    }
}
