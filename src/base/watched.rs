//! Watches the calls of a base: detects slow ones, and refuses calls while too many are stuck.
//!
//! A base can be on a server or disk that does not respond. A thread blocked in such a call cannot
//! be cancelled. So the first slow calls mark the base as slow, which keeps its calls off the
//! network threads. Once [`MAX_STUCK_CALLS`] calls are stuck, further calls fail at once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Base, BaseAttr, BaseError, BasePath, Entries, Listing};
use crate::vfs::{FileId, Name};

/// Maximum number of calls watched at a time; further calls are not watched.
const MAX_WATCHED_CALLS: usize = 96;

/// Maximum number of stuck calls of one base; further calls are refused.
pub const MAX_STUCK_CALLS: usize = 8;

/// Time after which a call is stuck.
const STUCK_CALL: Duration = Duration::from_secs(2);

/// Added to the start of a search of the whole base, which so counts as stuck after 62 s.
const STUCK_SEARCH: Duration = Duration::from_secs(60);

/// Duration after which a small call marks the base as slow.
const SLOW_CALL: Duration = Duration::from_millis(100);

/// How long the base stays slow.
const SLOW_FOR: Duration = Duration::from_secs(10);

/// Largest read that counts as a small call, in bytes.
const MAX_SMALL_READ_BYTES: usize = 64 << 10;

/// Start time of a call that is not accessing the base at the moment: later than any other.
const PAUSED: u64 = u64::MAX / 4;

thread_local! {
    /// Whether a base has refused a call on this thread.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Wraps another base: measures its calls, and refuses calls while too many are stuck.
pub struct WatchedBase {
    inner: Arc<dyn Base>,
    /// Start time of each call, shifted left by one; bit 0 marks a small call; 0 is a free slot.
    calls: Box<[AtomicU64]>,
    /// Time until which the base counts as slow.
    slow_until: AtomicU64,
    is_remote: bool,
}

/// Guard of a running call.
struct WatchedCall<'a> {
    watched: &'a WatchedBase,
    slot: Option<&'a AtomicU64>,
    began: u64,
    is_small: bool,
}

/// The amount of work of a call, which decides when it counts as slow or stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
    Search,
}

impl WatchedBase {
    /// Watches the calls of `inner`.
    pub fn new(inner: Arc<dyn Base>) -> Self {
        let calls = std::iter::repeat_with(AtomicU64::default).take(MAX_WATCHED_CALLS).collect();
        let is_remote = inner.is_remote();
        Self { inner, calls, slow_until: AtomicU64::new(0), is_remote }
    }

    /// Whether even a small call may take long: the base is remote, or a small call took long
    /// within the last 10 seconds or is taking long now.
    pub fn is_slow(&self) -> bool {
        if self.is_remote {
            return true;
        }
        let now = now();
        let until = self.slow_until.load(Ordering::Relaxed);
        if until > now {
            return true;
        }
        let is_long = |call: &AtomicU64| {
            let call = call.load(Ordering::Relaxed);
            call % 2 == 1 && age(call, now) >= SLOW_CALL
        };
        // Calls take the first free slots.
        let is_slow = self.calls[..=MAX_STUCK_CALLS].iter().any(is_long);
        if is_slow {
            self.note_slow(now);
        }
        is_slow
    }

    /// How long the oldest running call has been running.
    pub fn oldest_call(&self) -> Duration {
        let now = now();
        let calls = self.calls.iter().map(|call| call.load(Ordering::Relaxed));
        calls.filter(|&call| call != 0).map(|call| age(call, now)).max().unwrap_or_default()
    }

    /// Whether a call is stuck.
    pub fn is_stuck(&self) -> bool {
        self.oldest_call() >= STUCK_CALL
    }

    /// Returns and clears whether a base has refused a call on this thread. If so, the results of
    /// the operation are invalid.
    pub fn take_refused() -> bool {
        REFUSED.take()
    }

    fn note_slow(&self, now: u64) {
        let until = now.saturating_add(millis(SLOW_FOR));
        if self.slow_until.swap(until, Ordering::Relaxed) < now {
            tracing::warn!(
                "base is slow (a call took over 100 ms): its calls go to worker threads for 10 s"
            );
        }
    }

    /// Starts a call; fails if too many are stuck.
    fn begin(&self, size: Size) -> Result<WatchedCall<'_>, BaseError> {
        let began = now();
        let is_small = size == Size::Small;
        // A search is allowed to take longer.
        let counted = if size == Size::Search { began + millis(STUCK_SEARCH) } else { began };
        let call = 2 * counted + u64::from(is_small);
        for (at, slot) in self.calls.iter().enumerate() {
            let is_free = slot.load(Ordering::Relaxed) == 0;
            let take = || slot.compare_exchange(0, call, Ordering::AcqRel, Ordering::Relaxed);
            if is_free && take().is_ok() {
                if at >= MAX_STUCK_CALLS && self.stuck_calls(began) >= MAX_STUCK_CALLS {
                    slot.store(0, Ordering::Release);
                    REFUSED.set(true);
                    return Err(BaseError::Unresponsive);
                }
                return Ok(WatchedCall { watched: self, slot: Some(slot), began, is_small });
            }
        }
        Ok(WatchedCall { watched: self, slot: None, began, is_small })
    }

    fn stuck_calls(&self, now: u64) -> usize {
        let is_stuck = |call: &&AtomicU64| age(call.load(Ordering::Relaxed), now) >= STUCK_CALL;
        self.calls.iter().filter(is_stuck).count()
    }
}

impl WatchedCall<'_> {
    /// Stops the time measurement: the call does not access the base for a while.
    fn pause(&mut self) {
        self.note_if_slow(now());
        self.count_from(PAUSED);
    }

    /// Restarts the time measurement.
    fn resume_watch(&mut self) {
        self.count_from(now());
    }

    fn count_from(&mut self, began: u64) {
        self.began = began;
        if let Some(slot) = self.slot {
            slot.store(2 * began + u64::from(self.is_small), Ordering::Relaxed);
        }
    }

    fn note_if_slow(&self, now: u64) {
        if self.is_small && now.saturating_sub(self.began) >= millis(SLOW_CALL) {
            self.watched.note_slow(now);
        }
    }
}

impl Drop for WatchedCall<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.store(0, Ordering::Release);
        }
        self.note_if_slow(now());
    }
}

/// How long a call has been running; zero for a free slot.
fn age(call: u64, now: u64) -> Duration {
    if call == 0 { Duration::ZERO } else { Duration::from_millis(now.saturating_sub(call / 2)) }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The monotonic time in milliseconds, from a clock that takes a few nanoseconds to read; never 0.
fn now() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::MonotonicCoarse;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(CLOCK);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000 + 1
}

impl Base for WatchedBase {
    fn invalidate(&self) {
        self.inner.invalidate();
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn must_stay_open(&self) -> bool {
        self.inner.must_stay_open()
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn has_unfinished_apply(&self) -> Result<bool, BaseError> {
        let _call = self.begin(Size::Small)?;
        self.inner.has_unfinished_apply()
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        let _call = self.begin(Size::Small)?;
        self.inner.stat(path)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        let _call = self.begin(Size::Large)?;
        self.inner.list(path)
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        let mut call = self.begin(Size::Small)?;
        let inner = self.inner.entries(path)?;
        call.pause();
        Ok(Box::new(WatchedEntries { inner, call: RefCell::new(call) }))
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        let _call = self.begin(Size::Small)?;
        self.inner.read_link(path)
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        let is_small = buffer.len() <= MAX_SMALL_READ_BYTES;
        let _call = self.begin(if is_small { Size::Small } else { Size::Large })?;
        self.inner.read(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        let _call = self.begin(Size::Large)?;
        self.inner.next_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        let _call = self.begin(Size::Search)?;
        self.inner.find_linked(id, wanted)
    }
}

/// An open directory: one watched call, paused between accesses.
struct WatchedEntries<'a> {
    inner: Box<dyn Entries + 'a>,
    call: RefCell<WatchedCall<'a>>,
}

impl Entries for WatchedEntries<'_> {
    fn stat(&self, name: &Name, id: FileId) -> Result<BaseAttr, BaseError> {
        self.call.borrow_mut().resume_watch();
        let attr = self.inner.stat(name, id);
        self.call.borrow_mut().pause();
        attr
    }
}

impl fmt::Debug for WatchedBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedBase").field("is_remote", &self.is_remote).finish_non_exhaustive()
    }
}
