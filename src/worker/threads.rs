//! Marks the worker's threads, so that blocking work moves off them.
//!
//! A call continues on the thread that answers it (docs/decisions/0037-who-answers-goes-on.md): the
//! writer thread or a reader thread, where it delays all other operations. Code there must not take
//! longer than sending a reply, and must never query the base, which may hang.

use std::cell::Cell;

thread_local! {
    /// Whether this thread belongs to a worker.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the current thread as one of the worker's.
pub(super) fn mark_worker_thread() {
    IS_OURS.set(true);
}

/// Must precede work on a caller's own thread: on a worker's thread it moves the call to a task of
/// the runtime.
pub(super) async fn leave_worker_thread() {
    if IS_OURS.get() {
        tokio::task::yield_now().await;
    }
}
