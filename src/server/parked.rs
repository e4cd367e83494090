//! Work on a call that waits: whoever wakes it goes on with it.
//!
//! A call that changes something waits for the thread that writes. To wake a task of the runtime
//! for its answer costs more than to send the reply, and the thread that writes would only wait
//! for the next calls: so a thread that is none of the runtime's does it itself
//! (docs/decisions/0037-who-answers-goes-on.md). It never blocks: where the client takes no
//! reply, the work waits again, and goes on as a task of the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::runtime::Handle;

/// Work on a call, until it is done.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The place of work that waits. It ends with the work: whatever may wake it has to do so, or to
/// let go of it.
struct Parked {
    state: Mutex<State>,
    runtime: Handle,
}

enum State {
    /// A thread is at it.
    Running,
    /// A thread is at it, and it was woken meanwhile.
    Woken,
    /// It waits to be woken.
    Waiting(Work),
    /// It is done, or a task has it.
    Gone,
}

/// Goes on with `work` here as far as that can be, and then where it is woken: on a thread of the
/// runtime, which this has to be as well, as a task; on any other thread at once.
pub(super) fn go_on(work: impl Future<Output = ()> + Send + 'static) {
    let parked = Parked { state: Mutex::new(State::Running), runtime: Handle::current() };
    Arc::new(parked).poll(Box::pin(work));
}

impl Parked {
    /// Polls the work, which this thread has, in the context of the runtime.
    fn poll(self: Arc<Self>, mut work: Work) {
        let waker = Waker::from(Arc::clone(&self));
        if work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            *self.state() = State::Gone;
            return;
        }
        let mut state = self.state();
        if matches!(*state, State::Woken) {
            *state = State::Gone;
            drop(state);
            self.runtime.spawn(work);
        } else {
            *state = State::Waiting(work);
        }
    }

    /// Takes the work of one that waits; else notes that it was woken.
    fn wake_up(&self) -> Option<Work> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Waiting(work) => {
                *state = State::Running;
                Some(work)
            }
            State::Running | State::Woken => {
                *state = State::Woken;
                None
            }
            State::Gone => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change of it is ever half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        let Some(work) = self.wake_up() else { return };
        // What goes on here wakes others as a thread of the runtime does: it wakes tasks, and
        // none of them inside another.
        if Handle::try_current().is_ok() {
            *self.state() = State::Gone;
            self.runtime.spawn(work);
        } else {
            let runtime = self.runtime.clone();
            let _context = runtime.enter();
            // As in a task, a panic is the work's own: the thread goes on with what it does.
            if catch_unwind(AssertUnwindSafe(|| self.poll(work))).is_err() {
                tracing::error!("a call is not answered, because of a panic");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// Work that waits for `first` and then for `second`, and says after each where it is.
    async fn work(
        first: oneshot::Receiver<()>,
        second: oneshot::Receiver<()>,
        places: mpsc::Sender<ThreadId>,
    ) {
        let _sent = first.await;
        places.send(thread::current().id()).unwrap();
        let _sent = second.await;
        places.send(thread::current().id()).unwrap();
    }

    fn next(places: &mpsc::Receiver<ThreadId>) -> ThreadId {
        places.recv_timeout(Duration::from_secs(20)).expect("it goes on")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_of_its_own_goes_on_itself() {
        let ((wake_first, first), (wake_second, second)) = (oneshot::channel(), oneshot::channel());
        let (places, at) = mpsc::channel();
        go_on(work(first, second, places));
        let outside = thread::spawn(move || {
            wake_first.send(()).unwrap();
            // Before anything else happens here.
            let place = at.try_recv();
            wake_second.send(()).unwrap();
            (place, at.try_recv(), thread::current().id())
        });
        let (first, second, own) = outside.join().unwrap();
        assert_eq!((first, second), (Ok(own), Ok(own)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_of_the_runtime_makes_a_task_of_it() {
        let ((wake_first, first), (wake_second, second)) = (oneshot::channel(), oneshot::channel());
        let (places, at) = mpsc::channel();
        go_on(work(first, second, places));
        wake_first.send(()).unwrap();
        let outside = tokio::task::spawn_blocking(move || {
            let task = next(&at);
            // A task stays one, whoever wakes it.
            let waker = thread::spawn(move || {
                wake_second.send(()).unwrap();
                thread::current().id()
            });
            (task, waker.join().unwrap(), next(&at))
        });
        let (task, waker, again) = outside.await.unwrap();
        assert_ne!(task, thread::current().id());
        assert_ne!(again, waker);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_others_wake_does_not_run_inside_them() {
        let (wake_outer, outer) = oneshot::channel();
        let (wake_inner, inner) = oneshot::channel::<()>();
        let (places, at) = mpsc::channel();
        let of_inner = places.clone();
        go_on(async move {
            let _sent = inner.await;
            of_inner.send(thread::current().id()).unwrap();
        });
        go_on(async move {
            let _sent = outer.await;
            wake_inner.send(()).unwrap();
            places.send(thread::current().id()).unwrap();
        });
        let outside = thread::spawn(move || {
            wake_outer.send(()).unwrap();
            thread::current().id()
        });
        let outside = outside.join().unwrap();
        let both = [next(&at), next(&at)];
        assert_eq!(both.iter().filter(|&&place| place == outside).count(), 1, "{both:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_call_to_wake_up_is_missed() {
        let (done, all) = mpsc::channel();
        for _ in 0..2_000 {
            let done = done.clone();
            let (wake, woken) = oneshot::channel::<()>();
            let waker = thread::spawn(move || wake.send(()));
            go_on(async move {
                // Wakes itself while it runs.
                tokio::task::yield_now().await;
                let _sent = woken.await;
                done.send(()).unwrap();
            });
            waker.join().unwrap().unwrap();
        }
        drop(done);
        let count = tokio::task::spawn_blocking(move || all.iter().count()).await.unwrap();
        assert_eq!(count, 2_000);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_panics_is_let_go_of() {
        struct Told(mpsc::Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _sent = self.0.send(());
            }
        }
        let (wake, woken) = oneshot::channel::<()>();
        let (sender, dropped) = mpsc::channel();
        let told = Told(sender);
        go_on(async move {
            let _told = told;
            let _sent = woken.await;
            panic!("as it is to");
        });
        let outside = thread::spawn(move || wake.send(()));
        assert_eq!(outside.join().expect("the thread goes on"), Ok(()));
        dropped.try_recv().expect("the work is gone");
    }
}
