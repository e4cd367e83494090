//! The number of the call that a thread works on, for lines of the log.
//!
//! Each call that a server receives gets a number. It stays with the call on its way through
//! threads: a suspended call has it set while it is polled ([`OfRequest`]), and the worker sets it
//! while it runs an operation of the call. The log adds it to each line that this thread logs.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The number of a call, unique in this process; `None` outside calls.
pub(crate) type RequestId = Option<std::num::NonZeroU64>;

thread_local! {
    static CURRENT: Cell<RequestId> = const { Cell::new(None) };
}

/// A number for a call that was just received. The first is 1.
pub(crate) fn next() -> RequestId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    std::num::NonZeroU64::new(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// The call that the current thread works on.
pub(crate) fn current() -> RequestId {
    CURRENT.try_with(Cell::get).unwrap_or_default()
}

/// Runs `f` as a part of the call `id`.
pub(crate) fn within<T>(id: RequestId, f: impl FnOnce() -> T) -> T {
    let _before = PreviousRequest(CURRENT.replace(id));
    f()
}

/// Sets the number again that was set before, also after a panic.
struct PreviousRequest(RequestId);

impl Drop for PreviousRequest {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A future that belongs to the call during which it was made.
pub(crate) struct OfRequest<T = ()> {
    id: RequestId,
    work: Pin<Box<dyn Future<Output = T> + Send>>,
}

impl<T> OfRequest<T> {
    /// Binds `work` to the current call.
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { id: current(), work: Box::pin(work) }
    }
}

impl<T> Future for OfRequest<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let id = self.id;
        within(id, || self.work.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn each_call_has_its_own_number() {
        let (one, two) = (next(), next());
        assert!(one.is_some() && two > one);
    }

    #[test]
    fn the_call_before_is_current_again_also_after_a_panic() {
        let (one, two) = (next(), next());
        within(one, || {
            within(two, || assert_eq!(current(), two));
            assert_eq!(current(), one);
            let _panic = catch_unwind(|| within(two, || panic!("on purpose")));
            assert_eq!(current(), one);
        });
        assert_eq!(current(), None);
    }

    #[test]
    fn a_suspended_call_has_its_number_at_each_poll() {
        let id = next();
        let suspended = within(id, || {
            let mut polls = 0;
            OfRequest::new(std::future::poll_fn(move |_| {
                assert_eq!(current(), id);
                polls += 1;
                if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
            }))
        });
        let mut suspended = std::pin::pin!(suspended);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(suspended.as_mut().poll(&mut context).is_pending());
        assert_eq!(current(), None);
        assert!(suspended.as_mut().poll(&mut context).is_ready());
    }
}
