//! How a connection has behaved: whether a sound call of it was ever answered, whether it takes
//! its replies, and how many of its calls made no sense of late.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::limits::{FREE_REFUSALS, NEWCOMER_BYTES};

/// Refusals that count: after the last of them, as many sound calls make up for all.
const MAX_REFUSALS: u32 = 2 * FREE_REFUSALS;

/// What a connection's calls came to.
#[derive(Debug, Default)]
pub struct Standing {
    is_known: AtomicBool,
    /// Calls that were refused, less those that were answered since.
    refusals: AtomicU32,
    /// Bytes of replies that it took since it last let one wait, as far as they matter.
    taken_bytes: AtomicUsize,
}

impl Standing {
    /// Notes a sound call, which was answered.
    pub fn answered(&self) {
        self.is_known.store(true, Ordering::Relaxed);
        self.change(|refusals| refusals.saturating_sub(1));
    }

    /// Notes a call that made no sense.
    pub fn refused(&self) {
        self.change(|refusals| MAX_REFUSALS.min(refusals + 1));
    }

    /// Notes that a reply of so many bytes was sent.
    pub fn took(&self, bytes: usize) {
        if self.is_newcomer() {
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that it let a reply wait: it has to show again that it takes them.
    pub fn let_wait(&self) {
        self.taken_bytes.store(0, Ordering::Relaxed);
    }

    /// Whether it has yet to show that it takes its replies.
    pub fn is_newcomer(&self) -> bool {
        self.taken_bytes.load(Ordering::Relaxed) < NEWCOMER_BYTES
    }

    /// Whether a sound call was answered.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Whether it is to be read from more slowly.
    pub fn is_tiresome(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > FREE_REFUSALS
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        // Most connections have nothing to make up for, and share no cache line over it.
        let now = self.refusals.load(Ordering::Relaxed);
        if change(now) != now {
            // Two changes at once may count as one: it need not be exact.
            self.refusals.store(change(now), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_calls_make_up_for_refusals() {
        let standing = Standing::default();
        (0..FREE_REFUSALS).for_each(|_| standing.refused());
        assert!(!standing.is_tiresome() && !standing.is_known());
        standing.refused();
        assert!(standing.is_tiresome());
        standing.answered();
        assert!(!standing.is_tiresome() && standing.is_known());
        (0..1000).for_each(|_| standing.refused());
        (0..FREE_REFUSALS).for_each(|_| standing.answered());
        assert!(!standing.is_tiresome());
    }

    #[test]
    fn who_takes_replies_is_no_newcomer_until_one_waits() {
        let standing = Standing::default();
        standing.took(NEWCOMER_BYTES - 1);
        assert!(standing.is_newcomer());
        standing.took(1);
        assert!(!standing.is_newcomer());
        standing.let_wait();
        assert!(standing.is_newcomer());
        standing.took(NEWCOMER_BYTES);
        assert!(!standing.is_newcomer());
    }
}
