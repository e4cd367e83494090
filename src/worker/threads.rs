//! The worker's threads, and the calls that go on there.
//!
//! Whoever answers a call goes on with it (docs/decisions/0037-who-answers-goes-on.md): what
//! follows an answer runs on the writer thread or a reader's, and holds everybody else up. So
//! nothing that takes longer than to send a reply may happen there, and above all nothing that
//! asks the base, which may hang.

use std::cell::Cell;

thread_local! {
    /// Whether this is a thread of a worker.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Says that the current thread is one of the worker's.
pub(super) fn join() {
    IS_OURS.set(true);
}

/// Goes before work that a caller does on its own thread: if that is one of the worker's, the
/// call goes on as a task of the runtime.
pub(super) async fn leave() {
    if IS_OURS.get() {
        tokio::task::yield_now().await;
    }
}
