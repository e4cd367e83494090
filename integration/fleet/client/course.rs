//! What the clients and those who send the events tell each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::caller::RETRY;

/// The state of a run.
#[derive(Default)]
pub struct Course {
    /// All is to be checked now, and then to end.
    pub is_over: AtomicBool,
    /// No calls are to be made.
    pub is_quiet: AtomicBool,
    /// Clients that make none.
    pub resting: AtomicUsize,
    failed: AtomicBool,
}

impl Course {
    /// Whether a client has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Has all clients end.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Waits while no calls are to be made. Returns whether to make more.
    pub fn goes_on(&self) -> bool {
        if self.is_quiet.load(Ordering::SeqCst) {
            self.resting.fetch_add(1, Ordering::SeqCst);
            while self.is_quiet.load(Ordering::SeqCst) && !self.has_failed() {
                thread::sleep(RETRY);
            }
            self.resting.fetch_sub(1, Ordering::SeqCst);
        }
        !self.is_over.load(Ordering::SeqCst) && !self.has_failed()
    }

    /// Waits for so long, or until no calls are to be made.
    pub fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        let stops = || {
            self.has_failed()
                || self.is_over.load(Ordering::SeqCst)
                || self.is_quiet.load(Ordering::SeqCst)
        };
        while Instant::now() < end && !stops() {
            thread::sleep(RETRY);
        }
    }
}
