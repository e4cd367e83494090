//! Runs a suspended call on the thread that wakes it, if that has a [`run_queue`].
//!
//! A call that changes something waits for a thread of the worker. Waking a task of the runtime for
//! the answer costs more than sending the reply, and that thread is otherwise idle. So that thread
//! runs the rest of the call itself (docs/decisions/0037-run-queues.md). The call never blocks it:
//! if the client does not read, the call is suspended again and continues as a task of the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use crate::request_id::OfRequest;
use crate::run_queue::{self, WokenCall};

/// A suspended call. The owner of its waker must wake the call or drop the waker.
struct InlineTask {
    state: Mutex<TaskState>,
    runtime: Handle,
}

enum TaskState {
    /// A thread is polling the work.
    Running,
    /// A thread is polling the work, and it was woken since the poll began.
    Woken,
    /// The work is suspended.
    Waiting(OfRequest),
    /// The work was woken, and no thread polls it yet.
    Queued(OfRequest),
    /// The work is finished, or was spawned as a task.
    Gone,
}

/// Polls `work` on this thread, which belongs to the runtime, until it is suspended. Woken by a
/// thread with a queue, it runs there; otherwise it becomes a task.
pub(super) fn run_inline(work: impl Future<Output = ()> + Send + 'static) {
    let inline_task =
        InlineTask { state: Mutex::new(TaskState::Running), runtime: Handle::current() };
    Arc::new(inline_task).poll(OfRequest::new(work));
}

impl InlineTask {
    /// Polls the work. The caller is in the context of the runtime.
    fn poll(self: Arc<Self>, mut work: OfRequest) {
        let waker = Waker::from(Arc::clone(&self));
        if Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_ready() {
            *self.state() = TaskState::Gone;
            return;
        }
        let mut state = self.state();
        if matches!(*state, TaskState::Woken) {
            *state = TaskState::Gone;
            drop(state);
            self.runtime.spawn(work);
        } else {
            *state = TaskState::Waiting(work);
        }
    }

    /// Records a wake-up; returns whether the work was suspended, and now has to run.
    fn enqueue(&self) -> bool {
        let mut state = self.state();
        match std::mem::replace(&mut *state, TaskState::Gone) {
            TaskState::Waiting(work) => {
                *state = TaskState::Queued(work);
                return true;
            }
            TaskState::Running | TaskState::Woken => *state = TaskState::Woken,
            other => *state = other,
        }
        false
    }

    /// Takes the work of a call that has to run.
    fn take(&self, next: TaskState) -> Option<OfRequest> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, next) {
            TaskState::Queued(work) => Some(work),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, TaskState> {
        // A panic cannot leave the state inconsistent.
        self.state.lock()
    }
}

impl Wake for InlineTask {
    fn wake(self: Arc<Self>) {
        if self.enqueue()
            && !run_queue::push(Arc::clone(&self) as Arc<dyn WokenCall>)
            && let Some(work) = self.take(TaskState::Gone)
        {
            self.runtime.spawn(work);
        }
    }
}

impl WokenCall for InlineTask {
    fn run(self: Arc<Self>) {
        let Some(work) = self.take(TaskState::Running) else { return };
        let runtime = self.runtime.clone();
        let _context = runtime.enter();
        // As in a spawned task, a panic ends only this work, not the thread.
        if catch_unwind(AssertUnwindSafe(|| self.poll(work))).is_err() {
            tracing::error!("a call is not answered, because of a panic");
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
    use crate::run_queue::RunQueue;

    /// Waits for `first`, then for `second`; reports its thread after each.
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
        places.recv_timeout(Duration::from_secs(20)).expect("it continues")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_with_a_queue_goes_on_itself() {
        let ((wake_first, first), (wake_second, second)) = (oneshot::channel(), oneshot::channel());
        let (places, at) = mpsc::channel();
        run_inline(work(first, second, places));
        let outside = thread::spawn(move || {
            let woken = RunQueue::open();
            wake_first.send(()).unwrap();
            assert!(at.try_recv().is_err(), "it ran inside `send`");
            woken.drain();
            let place = at.try_recv();
            wake_second.send(()).unwrap();
            woken.drain();
            (place, at.try_recv(), thread::current().id())
        });
        let (first, second, own) = outside.join().unwrap();
        assert_eq!((first, second), (Ok(own), Ok(own)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_without_a_queue_makes_a_task_of_it() {
        let ((wake_first, first), (wake_second, second)) = (oneshot::channel(), oneshot::channel());
        let (places, at) = mpsc::channel();
        run_inline(work(first, second, places));
        wake_first.send(()).unwrap();
        let outside = tokio::task::spawn_blocking(move || {
            let task = next(&at);
            // Once spawned, the work stays a task on any wake-up.
            let waker = thread::spawn(move || {
                let _woken = RunQueue::open();
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
        run_inline(async move {
            let _sent = inner.await;
            of_inner.send(thread::current().id()).unwrap();
        });
        run_inline(async move {
            let _sent = outer.await;
            wake_inner.send(()).unwrap();
            places.send(thread::current().id()).unwrap();
        });
        let outside = thread::spawn(move || {
            let _woken = RunQueue::open();
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
        for number in 0..2_000 {
            let done = done.clone();
            let (wake, woken) = oneshot::channel::<()>();
            let waker = thread::spawn(move || {
                let _woken = (number % 2 == 0).then(RunQueue::open);
                wake.send(())
            });
            run_inline(async move {
                // Wakes itself while it is polled.
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
        run_inline(async move {
            let _told = told;
            let _sent = woken.await;
            panic!("as it is to");
        });
        let outside = thread::spawn(move || {
            let _woken = RunQueue::open();
            wake.send(())
        });
        assert_eq!(outside.join().expect("the thread continues"), Ok(()));
        dropped.try_recv().expect("the work is gone");
    }
}
