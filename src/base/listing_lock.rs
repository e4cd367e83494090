//! [`ListingLock`]: a mutex that can be acquired with a timeout.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Ensures one large listing in memory at a time. Bases and sessions share one.
#[derive(Default)]
pub struct ListingLock {
    is_taken: Mutex<bool>,
    freed: Condvar,
}

/// Guard of a [`ListingLock`]; releases it when dropped.
pub struct ListingLockGuard(Arc<ListingLock>);

impl ListingLock {
    /// Acquires the mutex; `None` if it is not free within `wait`.
    pub fn take(self: &Arc<Self>, wait: Duration) -> Option<ListingLockGuard> {
        let deadline = Instant::now() + wait;
        let mut is_taken = self.lock();
        while *is_taken {
            let left = deadline.checked_duration_since(Instant::now())?;
            self.freed.wait_for(&mut is_taken, left);
        }
        *is_taken = true;
        Some(ListingLockGuard(Arc::clone(self)))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock()
    }
}

impl Drop for ListingLockGuard {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.freed.notify_one();
    }
}

impl fmt::Debug for ListingLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListingLockGuard")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_the_next_gets_it_when_it_ends() {
        let turn = Arc::new(ListingLock::default());
        let taken = turn.take(Duration::ZERO).unwrap();
        assert!(turn.take(Duration::ZERO).is_none());
        assert!(turn.take(Duration::from_millis(5)).is_none());
        let next = Arc::clone(&turn);
        let waits = std::thread::spawn(move || next.take(Duration::from_secs(60)).is_some());
        drop(taken);
        assert!(waits.join().unwrap());
        assert!(turn.take(Duration::ZERO).is_some());
    }
}
