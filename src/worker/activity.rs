//! How long the writer of a session has been in one operation.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::limits::{MAX_LOOK_GAP, STUCK};
use super::thread_watch::Moment;
use crate::request_id::RequestId;

/// The current operation of a writer, as the watching thread sees it.
#[derive(Default)]
pub(super) struct Activity {
    /// When the operation began; 0 if there is none.
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

    /// Records that the operation ended.
    pub fn end(&self) {
        self.began.store(0, Ordering::SeqCst);
        if self.is_stuck.load(Ordering::SeqCst) {
            self.is_stuck.store(false, Ordering::SeqCst);
        }
    }

    /// Whether it counts as stuck.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Marks the writer as stuck after [`STUCK`]; returns true once, at that moment. Must not be
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
        assert!(activity.is_stuck());
        activity.end();
        assert!(!activity.is_stuck());
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
