//! What comes while a batch runs, and is committed with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use acetate::delta::{StoreError, StoreErrorKind};
use acetate::worker::MIN_OPS_TO_ADMIT;

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

/// An operation of a test that has begun and waits.
struct Running(mpsc::Sender<()>);

impl Running {
    /// Lets it, and all of its batch, go on.
    fn go_on(self) {
        self.0.send(()).unwrap();
    }
}

/// Makes a batch of `ops` operations, of which the first, if `durable`, needs a sync, and the last
/// runs and waits; their answers.
async fn running<'a>(
    store: &FakeStore,
    worker: &'a Worker,
    ops: usize,
    durable: bool,
) -> (Running, Vec<Pending<'a, Answer<u64>>>) {
    let (hold, first) = busy(store, worker).await;
    let mut calls = Vec::new();
    for ino in 1..ops {
        calls.push(asked(worker.write(LIGHT, 1, durable && ino == 1, set(ino as u64, "x"))).await);
    }
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let last = move |txn: &mut dyn WriteTxn| {
        // Where it runs once more, it does not wait again.
        if begun.send(()).is_ok() {
            let _ = may_go_on.recv();
        }
        set(ops as u64, "x")(txn)
    };
    calls.push(asked(worker.write(LIGHT, 1, durable && ops == 1, last)).await);
    drop(hold);
    soon(first).await.unwrap();
    soon(tokio::task::spawn_blocking(move || has_begun.recv())).await.unwrap().unwrap();
    (Running(go_on), calls)
}

/// The commits after that of `busy`.
fn commits(store: &FakeStore) -> usize {
    store.count(Call::Commit) - 1
}

async fn all_made(calls: Vec<Pending<'_, Answer<u64>>>, durable: bool) {
    for call in calls {
        assert_eq!(soon(call).await.unwrap().durable, durable);
    }
}

#[tokio::test]
async fn what_comes_while_a_synced_batch_runs_shares_its_sync() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (running, mut calls) = running(&store, &worker, 1, true).await;
    calls.push(asked(worker.write(LIGHT, 1, true, set(2, "durable"))).await);
    calls.push(asked(worker.write(LIGHT, 1, false, set(3, "not"))).await);
    let sync = asked(worker.sync()).await;
    running.go_on();
    soon(sync).await.unwrap();
    all_made(calls, true).await;
    assert_eq!((commits(&store), store.count(Call::Sync)), (1, 0));
    assert_eq!(store.row(3).unwrap(), b"not");
}

#[tokio::test]
async fn what_comes_while_several_run_shares_their_commit_unless_it_needs_a_sync() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (running, mut calls) = running(&store, &worker, MIN_OPS_TO_ADMIT, false).await;
    calls.push(asked(worker.write(LIGHT, 1, false, set(7, "x"))).await);
    let durable = asked(worker.write(LIGHT, 1, true, set(8, "x"))).await;
    let behind = asked(worker.write(LIGHT, 1, false, set(9, "x"))).await;
    running.go_on();
    all_made(calls, false).await;
    all_made(vec![durable, behind], true).await;
    assert_eq!(commits(&store), 2);
}

#[tokio::test]
async fn a_few_that_need_no_sync_are_not_kept_waiting_for_others() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (running, calls) = running(&store, &worker, MIN_OPS_TO_ADMIT - 1, false).await;
    let next = asked(worker.write(LIGHT, 1, false, set(7, "x"))).await;
    running.go_on();
    all_made(calls, false).await;
    soon(next).await.unwrap();
    assert_eq!(commits(&store), 2);
}

#[tokio::test]
async fn what_joins_counts_for_the_bounds_of_the_batch() {
    for (ops, bytes) in [(2, 1000), (1000, 100)] {
        let store = FakeStore::default();
        let worker = start_with(&store, |limits| {
            limits.batch_ops = ops;
            limits.batch_bytes = bytes;
        });
        let (running, mut calls) = running(&store, &worker, 1, true).await;
        for ino in 2..=3 {
            calls.push(asked(worker.write(LIGHT, 60, true, set(ino, "x"))).await);
        }
        running.go_on();
        all_made(calls, true).await;
        assert_eq!(commits(&store), 2, "{ops} operations, {bytes} bytes");
    }
}

#[tokio::test]
async fn one_that_joined_is_undone_alone() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (running, mut calls) = running(&store, &worker, 1, true).await;
    calls.push(asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await);
    calls.push(asked(worker.write(LIGHT, 1, false, set(3, "x"))).await);
    running.go_on();
    all_made(calls, true).await;
    assert_eq!([1, 2, 3].map(|ino| store.row(ino).is_some()), [true, false, true]);
    assert_eq!(store.count(Call::RollBack), 1);
}

#[tokio::test]
async fn after_one_was_undone_those_that_joined_do_not_run_twice_again() {
    let store = FakeStore::default();
    let worker = start(&store);
    let runs = Arc::new(AtomicUsize::new(0));
    for round in 1..=3 {
        let (running, mut calls) = running(&store, &worker, 1, true).await;
        let runs_again = Arc::clone(&runs);
        let counted = move |txn: &mut dyn WriteTxn| {
            runs_again.fetch_add(1, Ordering::Relaxed);
            set(2, "x")(txn)
        };
        calls.push(asked(worker.write(LIGHT, 1, false, counted)).await);
        calls.push(asked(worker.write(LIGHT, 1, false, set_and_regret(3))).await);
        running.go_on();
        all_made(calls, true).await;
        assert_eq!(store.count(Call::RollBack), round);
        assert_eq!(runs.load(Ordering::Relaxed), 1 + round, "twice in the first batch alone");
    }
}

#[tokio::test]
async fn what_joined_a_commit_that_fails_hears_of_it() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (running, mut calls) = running(&store, &worker, 1, true).await;
    calls.push(asked(worker.write(LIGHT, 1, false, set(2, "x"))).await);
    store.fail(Call::Commit, StoreError::full("scripted"));
    running.go_on();
    for call in calls {
        assert_eq!(failure_kind(&soon(call).await), Some(StoreErrorKind::Full));
    }
    assert_eq!((store.row(1), store.row(2)), (None, None));
}
