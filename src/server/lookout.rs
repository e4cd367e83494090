//! Looking out for a connection's next request for a moment, instead of going to sleep at once.
//!
//! A client that waits for each answer sends its next request some microseconds after it has
//! one. To wake a thread that went to sleep meanwhile, and its processor with it, takes longer
//! than to answer most requests (docs/decisions/0017).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::limits::LOOKOUT;

/// Misses that count: after the last of them a connection goes to sleep at once 2^6 - 1 times.
const MAX_MISSES: u8 = 6;

/// The one place to look out from: however many connections there are, this keeps one thread
/// awake at most.
#[derive(Debug)]
pub struct LookoutPost {
    /// Where the only processor is kept from the client, there is nothing to be seen.
    is_open: bool,
    taken: AtomicBool,
}

impl LookoutPost {
    /// A post on a machine with so many processors.
    pub fn new(processors: usize) -> Self {
        Self { is_open: processors > 1, taken: AtomicBool::new(false) }
    }

    fn take(&self) -> Option<PostGuard<'_>> {
        let free = self.is_open && !self.taken.swap(true, Ordering::Acquire);
        free.then_some(PostGuard(self))
    }
}

struct PostGuard<'a>(&'a LookoutPost);

impl Drop for PostGuard<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Whether looking out has paid for a connection of late.
#[derive(Debug, Default)]
pub struct Lookout {
    /// How often it did not, less how often it did since.
    misses: u8,
    /// Requests until it is tried again.
    rests: u8,
}

impl Lookout {
    /// Glances again and again for as long as [`LOOKOUT`], while no other connection has anything
    /// to do (`is_alone`); `None` if nothing came, or if it is not worth looking out.
    ///
    /// The thread does nothing else meanwhile: to give way to the runtime's other tasks would
    /// wake its other threads each time, for nothing.
    pub fn wait<T>(
        &mut self,
        post: &LookoutPost,
        is_alone: impl Fn() -> bool,
        mut glance: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if self.rests > 0 {
            self.rests -= 1;
            return None;
        }
        let _taken = post.take()?;
        let until = Instant::now() + LOOKOUT;
        while is_alone() {
            if let Some(seen) = glance() {
                self.misses = self.misses.saturating_sub(1);
                return Some(seen);
            }
            if Instant::now() >= until {
                self.miss();
                return None;
            }
            // The client may wait for this processor.
            thread::yield_now();
        }
        None
    }

    fn miss(&mut self) {
        self.misses = MAX_MISSES.min(self.misses + 1);
        self.rests = (1 << self.misses) - 1;
    }
}
