//! How a connection has behaved: whether it made a valid call, whether it reads its replies, and
//! how many of its recent calls were invalid.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::limits::{FREE_BAD_CALLS, PROVING_BYTES};

/// Cap on the bad-call score; that many valid calls reset it.
const MAX_BAD_CALL_SCORE: u32 = 2 * FREE_BAD_CALLS;

/// The behaviour of one connection so far.
#[derive(Debug, Default)]
pub struct Reputation {
    has_valid_call: AtomicBool,
    /// Invalid calls, less valid calls since.
    bad_call_score: AtomicU32,
    /// Bytes of replies sent since one last had to wait; no longer counted from [`PROVING_BYTES`]
    /// on.
    taken_bytes: AtomicUsize,
}

impl Reputation {
    /// Records a valid call that was answered.
    pub fn answered(&self) {
        self.has_valid_call.store(true, Ordering::Relaxed);
        self.change(|bad_call_score| bad_call_score.saturating_sub(1));
    }

    /// Records an invalid call.
    pub fn refused(&self) {
        self.change(|bad_call_score| MAX_BAD_CALL_SCORE.min(bad_call_score + 1));
    }

    /// Records that a reply of `bytes` bytes was sent.
    pub fn took(&self, bytes: usize) {
        if self.is_unproven() {
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records that a reply had to wait: the connection must prove again that it reads replies.
    pub fn stalled(&self) {
        self.taken_bytes.store(0, Ordering::Relaxed);
    }

    /// Whether the connection has not yet proved that it reads its replies.
    pub fn is_unproven(&self) -> bool {
        self.taken_bytes.load(Ordering::Relaxed) < PROVING_BYTES
    }

    /// Whether a valid call was answered.
    pub fn has_valid_call(&self) -> bool {
        self.has_valid_call.load(Ordering::Relaxed)
    }

    /// Whether requests are read more slowly because of invalid calls.
    pub fn is_throttled(&self) -> bool {
        self.bad_call_score.load(Ordering::Relaxed) > FREE_BAD_CALLS
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        // Most scores stay 0; without a store, no cache line moves between processors.
        let now = self.bad_call_score.load(Ordering::Relaxed);
        if change(now) != now {
            // A lost update is harmless: the score need not be exact.
            self.bad_call_score.store(change(now), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_calls_make_up_for_invalid_ones() {
        let reputation = Reputation::default();
        (0..FREE_BAD_CALLS).for_each(|_| reputation.refused());
        assert!(!reputation.is_throttled() && !reputation.has_valid_call());
        reputation.refused();
        assert!(reputation.is_throttled());
        reputation.answered();
        assert!(!reputation.is_throttled() && reputation.has_valid_call());
        (0..1000).for_each(|_| reputation.refused());
        (0..FREE_BAD_CALLS).for_each(|_| reputation.answered());
        assert!(!reputation.is_throttled());
    }

    #[test]
    fn a_client_that_reads_is_proven_until_a_reply_waits() {
        let reputation = Reputation::default();
        reputation.took(PROVING_BYTES - 1);
        assert!(reputation.is_unproven());
        reputation.took(1);
        assert!(!reputation.is_unproven());
        reputation.stalled();
        assert!(reputation.is_unproven());
        reputation.took(PROVING_BYTES);
        assert!(!reputation.is_unproven());
    }
}
