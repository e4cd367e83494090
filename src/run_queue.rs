//! Runs woken calls on the worker's threads, after the thread finished what it was doing
//! (docs/decisions/0037-run-queues.md).
//!
//! Such a thread has a [`RunQueue`]. A call that it wakes, for example by a reply, waits in the
//! queue until the thread drains it, where it holds no lock. The call must not take longer than
//! sending a reply, and must never query the base, which may hang: see [`leave_thread`].

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// A suspended call that was woken.
pub(crate) trait WokenCall {
    /// Runs it until it is suspended again. Catches its panics.
    fn run(self: Arc<Self>);
}

enum QueueState {
    /// This thread has no queue.
    Absent,
    Open(Vec<Arc<dyn WokenCall>>),
    Draining,
}

thread_local! {
    static QUEUE: RefCell<QueueState> = const { RefCell::new(QueueState::Absent) };
}

/// The queue of the current thread. Dropping it runs what is left.
pub(crate) struct RunQueue {
    /// The queue belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

impl RunQueue {
    /// Gives the current thread a queue.
    pub fn open() -> Self {
        QUEUE.set(QueueState::Open(Vec::new()));
        Self { _not_send: PhantomData }
    }

    /// Runs the woken calls. Those that they wake in turn do not run here.
    pub fn drain(&self) {
        let QueueState::Open(mut calls) = QUEUE.replace(QueueState::Draining) else { return };
        for call in calls.drain(..) {
            call.run();
        }
        QUEUE.set(QueueState::Open(calls));
    }
}

impl Drop for RunQueue {
    fn drop(&mut self) {
        self.drain();
        QUEUE.set(QueueState::Absent);
    }
}

/// Adds a call to the current thread's queue. Returns `false` if the thread has none, or is
/// draining it.
pub(crate) fn push(call: Arc<dyn WokenCall>) -> bool {
    QUEUE.with_borrow_mut(|queue| match queue {
        QueueState::Open(calls) => {
            calls.push(call);
            true
        }
        QueueState::Absent | QueueState::Draining => false,
    })
}

/// Must precede work that may take long: on a thread with a queue, it moves the call to a task of
/// the runtime.
pub(crate) async fn leave_thread() {
    if QUEUE.with_borrow(|queue| !matches!(queue, QueueState::Absent)) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts its runs, and how many calls it could push while it ran.
    #[derive(Default)]
    struct Counting {
        runs: AtomicUsize,
        pushed: AtomicUsize,
    }

    impl WokenCall for Counting {
        fn run(self: Arc<Self>) {
            self.runs.fetch_add(1, Ordering::Relaxed);
            if push(Arc::clone(&self) as Arc<dyn WokenCall>) {
                self.pushed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn calls_run_when_the_thread_drains_its_queue() {
        let call = Arc::new(Counting::default());
        let runs = || call.runs.load(Ordering::Relaxed);
        let wake = || push(Arc::clone(&call) as Arc<dyn WokenCall>);
        assert!(!wake(), "the thread has no queue");
        let queue = RunQueue::open();
        assert!(wake() && wake());
        assert_eq!(runs(), 0);
        queue.drain();
        assert_eq!(runs(), 2);
        assert!(wake());
        drop(queue);
        assert_eq!(runs(), 3);
        assert!(!wake(), "the queue is gone");
        assert_eq!(call.pushed.load(Ordering::Relaxed), 0, "a call ran in another one");
    }
}
