//! Busy-polls a connection for its next request for a short time before its task sleeps.
//!
//! A client that waits for each reply sends its next request some microseconds after a reply.
//! Waking a sleeping thread and its processor takes longer than answering most requests
//! (docs/decisions/0017).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::limits::BUSY_POLL_TIME;

/// Cap on the miss count; at the cap, a connection skips 2^6 - 1 polls after each miss.
const MAX_MISSES: u8 = 6;

/// The permit to busy-poll. At most one thread polls, however many connections there are.
#[derive(Debug)]
pub struct BusyPollPermit {
    /// False on a single processor: polling would keep the client from running.
    is_open: bool,
    taken: AtomicBool,
}

impl BusyPollPermit {
    /// A post for a machine with `processors` processors.
    pub fn new(processors: usize) -> Self {
        Self { is_open: processors > 1, taken: AtomicBool::new(false) }
    }

    fn take(&self) -> Option<PostGuard<'_>> {
        let free = self.is_open && !self.taken.swap(true, Ordering::Acquire);
        free.then_some(PostGuard(self))
    }
}

struct PostGuard<'a>(&'a BusyPollPermit);

impl Drop for PostGuard<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// How well busy-polling worked for one connection.
#[derive(Debug, Default)]
pub struct BusyPoll {
    /// Polls without a request, less polls with one since.
    misses: u8,
    /// Requests to wait for without polling.
    polls_to_skip: u8,
}

impl BusyPoll {
    /// Calls `glance` repeatedly for up to [`BUSY_POLL_TIME`], as long as `is_alone` says that no
    /// request is in flight anywhere. Returns `None` if nothing arrived or polling is not
    /// worthwhile.
    ///
    /// The thread blocks its runtime worker: yielding to the runtime would wake another worker
    /// thread each time for nothing.
    pub fn wait<T>(
        &mut self,
        post: &BusyPollPermit,
        is_alone: impl Fn() -> bool,
        mut glance: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if self.polls_to_skip > 0 {
            self.polls_to_skip -= 1;
            return None;
        }
        let _taken = post.take()?;
        let until = Instant::now() + BUSY_POLL_TIME;
        while is_alone() {
            if let Some(seen) = glance() {
                self.misses = self.misses.saturating_sub(1);
                return Some(seen);
            }
            if Instant::now() >= until {
                self.miss();
                return None;
            }
            // The client may need this processor.
            thread::yield_now();
        }
        None
    }

    fn miss(&mut self) {
        self.misses = MAX_MISSES.min(self.misses + 1);
        self.polls_to_skip = (1 << self.misses) - 1;
    }
}
