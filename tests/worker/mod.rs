//! The worker over a scripted store: what it promises about commits, answers, syncs and ends.

mod batch;
mod bounds;
mod callers;
mod company;
mod count;
mod executors;
mod failure;
mod fake;
mod fake_txn;
mod joining;
mod pool;
mod readers;
mod shutdown;
mod stress;
mod stuck;
mod sync;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

use acetate::delta::{Ino, StoreErrorKind, WriteTxn};
use acetate::worker::{Committed, Cost, Limits, OpResult, WorkError, Worker, WorkerOptions};

use fake::{Call, FakeStore};

type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Answer<T> = Result<Committed<T>, WorkError>;

/// The kind of the store's failure that a caller was answered, if it was one.
fn failure_kind<T>(answer: &Result<T, WorkError>) -> Option<StoreErrorKind> {
    match answer {
        Err(WorkError::Store(error)) => Some(error.kind),
        _ => None,
    }
}

/// What may run on its caller's thread; here no caller has any, unless a test says so.
const LIGHT: Cost = Cost::Inline;

const OPTIONS: WorkerOptions = WorkerOptions { strict: false, readers: 1, callers: 0 };

/// A worker whose timer never fires during a test.
fn start(store: &FakeStore) -> Worker {
    start_with(store, |_| ())
}

fn start_with(store: &FakeStore, change: impl FnOnce(&mut Limits)) -> Worker {
    let mut limits = Limits { sync_interval: Duration::from_secs(3600), ..Limits::default() };
    change(&mut limits);
    Worker::start_with(store.as_store(), OPTIONS, limits).unwrap()
}

/// Sets a row and answers its number.
fn set(ino: u64, value: &str) -> impl FnMut(&mut dyn WriteTxn) -> OpResult<u64> + Send + 'static {
    let value = value.to_owned();
    move |txn| {
        txn.put_symlink(Ino(ino), value.as_bytes()).unwrap();
        OpResult { value: ino, commit: true, after_commit: None }
    }
}

/// Sets a row as an operation that fails afterwards does.
fn set_and_regret(ino: u64) -> impl FnMut(&mut dyn WriteTxn) -> OpResult<u64> + Send + 'static {
    move |txn| {
        txn.put_symlink(Ino(ino), b"never seen").unwrap();
        OpResult { value: ino, commit: false, after_commit: None }
    }
}

/// A change that tells on which thread it runs.
fn whereabouts(_: &mut dyn WriteTxn) -> OpResult<ThreadId> {
    OpResult { value: thread::current().id(), commit: true, after_commit: None }
}

/// Polls a future once: a call to the worker is in its queue then, if there was room.
async fn asked<'a, T: 'a>(call: impl Future<Output = T> + Send + 'a) -> Pending<'a, T> {
    let mut call: Pending<'a, T> = Box::pin(call);
    assert!(is_pending(&mut call).await, "answered at once");
    call
}

async fn is_pending<T>(call: &mut Pending<'_, T>) -> bool {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await
}

/// Waits for a future as long as a slow machine may need, but not forever.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), call).await.expect("an answer in time")
}

/// Waits until `condition` holds.
async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Keeps the writer thread in a commit, so that what is asked meanwhile piles up.
async fn busy<'a>(store: &FakeStore, worker: &'a Worker) -> (fake::Hold, Pending<'a, Answer<u64>>) {
    let hold = store.hold(Call::Commit);
    let first = asked(worker.write(LIGHT, 1, false, set(0, "first"))).await;
    soon(hold.reached(1)).await;
    (hold, first)
}

/// A panic without the noise: the message of one on another thread is not captured.
fn scripted_panic() -> ! {
    std::panic::resume_unwind(Box::new("scripted"))
}
