//! What the worker promises does not depend on where an operation runs: the same tests with the
//! queues alone, and on callers' threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acetate::delta::{StoreError, StoreErrorKind};
use acetate::vfs::WriteVerifier;

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

/// Runs a test with each executor.
async fn with_each<F: Future<Output = ()>>(test: impl Fn(FakeStore, Worker) -> F) {
    for callers in [0, 1] {
        let store = FakeStore::default();
        let limits = Limits { sync_interval: Duration::from_secs(3600), ..Limits::default() };
        let options = WorkerOptions { callers, ..OPTIONS };
        let worker = Worker::start_with(store.as_store(), options, limits).unwrap();
        // Inline, they are refused until the worker's threads have begun to wait.
        let is_inline = callers > 0;
        soon(async {
            while reads_here(&worker).await != is_inline || writes_here(&worker).await != is_inline
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        test(store, worker).await;
    }
}

async fn writes_here(worker: &Worker) -> bool {
    let answer = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
    answer.value == thread::current().id()
}

async fn reads_here(worker: &Worker) -> bool {
    soon(worker.read(LIGHT, |_| thread::current().id())).await.unwrap() == thread::current().id()
}

#[tokio::test]
async fn an_answered_change_is_committed_and_read() {
    with_each(|store, worker| async move {
        let commits = store.count(Call::Commit);
        let answer = soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
        assert_eq!((answer.value, answer.durable), (1, false));
        assert_eq!(store.count(Call::Commit), commits + 1);
        assert_eq!(store.row(1).unwrap(), b"x");
        let read = soon(worker.read(LIGHT, |txn| txn.symlink(Ino(1)).unwrap())).await.unwrap();
        assert_eq!(read.unwrap(), b"x");
    })
    .await;
}

#[tokio::test]
async fn a_change_that_is_regretted_leaves_nothing() {
    with_each(|store, worker| async move {
        soon(worker.write(LIGHT, 1, false, set_and_regret(2))).await.unwrap();
        assert_eq!(store.row(2), None);
        soon(worker.write(LIGHT, 1, false, set(1, "next"))).await.unwrap();
        assert_eq!((store.row(1), store.row(2)), (Some(b"next".to_vec()), None));
    })
    .await;
}

#[tokio::test]
async fn caches_are_invalidated_after_the_commit_and_before_the_reply() {
    with_each(|store, worker| async move {
        let commits = store.count(Call::Commit);
        let seen = Arc::new(AtomicUsize::new(0));
        let (at_commit, counted) = (Arc::clone(&seen), store.clone());
        let change = move |txn: &mut dyn WriteTxn| {
            txn.put_symlink(Ino(1), b"x").unwrap();
            let (at_commit, counted) = (Arc::clone(&at_commit), counted.clone());
            let after_commit: Option<Box<dyn FnOnce() + Send>> = Some(Box::new(move || {
                at_commit.store(counted.count(Call::Commit), Ordering::SeqCst);
            }));
            OpResult { value: (), commit: true, after_commit }
        };
        soon(worker.write(LIGHT, 1, false, change)).await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), commits + 1);
    })
    .await;
}

#[tokio::test]
async fn a_failed_commit_is_told_and_costs_its_change_alone() {
    with_each(|store, worker| async move {
        store.fail(Call::Commit, StoreError::full("scripted"));
        let answer = soon(worker.write(LIGHT, 1, false, set(1, "lost"))).await;
        assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Full), "{answer:?}");
        assert_eq!(store.row(1), None);
        soon(worker.write(LIGHT, 1, false, set(1, "kept"))).await.unwrap();
        assert_eq!(store.row(1).unwrap(), b"kept");
    })
    .await;
}

#[tokio::test]
async fn an_operation_that_panics_fails_alone() {
    with_each(|store, worker| async move {
        let panics = |_: &mut dyn WriteTxn| -> OpResult<()> { scripted_panic() };
        let answer = soon(worker.write(LIGHT, 1, false, panics)).await;
        assert!(matches!(answer, Err(WorkError::Panicked)), "{answer:?}");
        let answer = soon(worker.read(LIGHT, |_| -> () { scripted_panic() })).await;
        assert!(matches!(answer, Err(WorkError::Panicked)), "{answer:?}");
        soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
        assert_eq!(store.row(1).unwrap(), b"x");
    })
    .await;
}

#[tokio::test]
async fn a_durable_change_is_synced_before_its_reply() {
    with_each(|store, worker| async move {
        let answer = soon(worker.write(LIGHT, 1, true, set(1, "x"))).await.unwrap();
        assert!(answer.durable);
        let calls = store.calls();
        assert!(calls.contains(&Call::Begin { durable: true }), "{calls:?}");
        assert_eq!(soon(worker.sync()).await.unwrap(), WriteVerifier(0u64.to_be_bytes()));
    })
    .await;
}

#[tokio::test]
async fn a_change_that_meets_a_lock_is_made_all_the_same() {
    with_each(|store, worker| async move {
        store.lock();
        soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
        assert_eq!(store.row(1).unwrap(), b"x");
    })
    .await;
}

#[tokio::test]
async fn nothing_runs_after_the_end() {
    with_each(|store, worker| async move {
        soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
        soon(worker.shut_down()).await.unwrap();
        let write = soon(worker.write(LIGHT, 1, false, set(1, "late"))).await;
        assert!(matches!(write, Err(WorkError::ShuttingDown)), "{write:?}");
        let read = soon(worker.read(LIGHT, |_| ())).await;
        assert!(matches!(read, Err(WorkError::ShuttingDown)), "{read:?}");
        assert_eq!(store.row(1).unwrap(), b"x");
    })
    .await;
}
