//! Many tasks at once: nothing is lost, nothing goes backwards, nobody starves.

use std::sync::{Arc, Mutex};

use acetate::delta::ReadTxn;
use acetate::worker::WorkError;

use super::fake::{Call, FakeStore};
use super::*;

const TASKS: u64 = 32;
const ROUNDS: u64 = 100;
const COUNTER: Ino = Ino(1);

fn counter<R: ReadTxn + ?Sized>(txn: &R) -> u64 {
    let bytes = txn.symlink(COUNTER).unwrap();
    bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
}

/// Adds one; every seventh time it does so in vain, every eleventh time it panics.
async fn add(worker: &Worker, step: u64) -> Option<u64> {
    let answer = worker.write(LIGHT, step as usize % 50, step.is_multiple_of(5), move |txn| {
        let value = counter(txn) + 1;
        txn.put_symlink(COUNTER, &value.to_be_bytes()).unwrap();
        if step % 11 == 3 {
            scripted_panic();
        }
        let keep = step % 7 != 3;
        OpResult { value: keep.then_some(value), commit: keep, after_commit: None }
    });
    match answer.await {
        Ok(answer) => answer.value,
        Err(WorkError::Panicked) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_loses_nothing_and_never_goes_back() {
    count_up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_where_callers_commit() {
    count_up(2).await;
}

async fn count_up(callers: usize) {
    let store = FakeStore::default();
    let limits = Limits {
        write_queue_ops: 16,
        write_queue_bytes: 300,
        batch_ops: 5,
        batch_bytes: 100,
        read_queue_ops: 4,
        sync_interval: Duration::from_millis(1),
    };
    let options = WorkerOptions { strict: false, readers: 3, callers };
    let worker = Arc::new(Worker::start_with(store.as_store(), options, limits).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let worker = Arc::clone(&worker);
        tasks.spawn(async move {
            let (mut added, mut seen) = (0, 0);
            for round in 0..ROUNDS {
                if let Some(value) = add(&worker, task * ROUNDS + round).await {
                    assert!(value > seen, "{value} after {seen}");
                    (added, seen) = (added + 1, value);
                }
                let read = worker.read(LIGHT, |txn| counter(txn)).await.unwrap();
                assert!(read >= seen, "{read} after {seen}");
                seen = read;
                if round % 16 == task % 16 {
                    worker.sync().await.unwrap();
                }
            }
            added
        });
    }
    let mut added = 0;
    while let Some(task) = soon(tasks.join_next()).await {
        added += task.unwrap();
    }
    let kept = |step: &u64| step % 7 != 3 && step % 11 != 3;
    assert_eq!(added, (0..TASKS * ROUNDS).filter(kept).count() as u64);
    soon(worker.shut_down()).await.unwrap();
    assert_eq!(store.row(COUNTER.0).unwrap(), added.to_be_bytes());
    assert!(store.count(Call::Commit) < added as usize, "no commit was ever shared");
}

/// Notes which of a task's changes it is.
async fn note(worker: &Worker, made: &Arc<Mutex<Vec<u64>>>, cost: Cost, nth: u64) {
    let made = Arc::clone(made);
    let change = move |_: &mut dyn WriteTxn| {
        made.lock().unwrap().push(nth);
        OpResult { value: (), commit: true, after_commit: None }
    };
    worker.write(cost, 1, false, change).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_makes_them_changes_are_made_in_their_order() {
    let store = FakeStore::default();
    let options = WorkerOptions { strict: false, readers: 1, callers: 2 };
    let worker = Arc::new(Worker::start(store.as_store(), options).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let worker = Arc::clone(&worker);
        // Else tokio makes one of four wait for a turn, so that it comes after the next.
        tasks.spawn(tokio::task::unconstrained(async move {
            let made = Arc::default();
            for nth in (0..3_000).step_by(4) {
                let note = |cost, more: u64| note(&worker, &made, cost, nth + more);
                tokio::join!(
                    note(LIGHT, 0),
                    note(Cost::Offload, 1),
                    note(LIGHT, 2),
                    note(LIGHT, 3)
                );
            }
            let made = made.lock().unwrap();
            assert!(made.iter().copied().eq(0..3_000), "another order: {made:?}");
        }));
    }
    while let Some(task) = soon(tasks.join_next()).await {
        task.unwrap();
    }
}
