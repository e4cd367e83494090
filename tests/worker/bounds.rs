//! Callers wait where a queue is full; it does not grow.

use super::fake::{Call, FakeStore};
use super::*;

#[tokio::test]
async fn a_queue_full_of_operations_makes_callers_wait() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.write_queue_ops = 3);
    let (hold, first) = busy(&store, &worker).await;
    let mut calls = Vec::new();
    for ino in 1..=6 {
        calls.push(asked(worker.write(LIGHT, 1, false, set(ino, "x"))).await);
    }
    drop(hold);
    soon(first).await.unwrap();
    // Two had room beside the first; the next three come in only when those are done.
    for call in &mut calls {
        soon(call).await.unwrap();
    }
    assert!(store.count(Call::Commit) >= 3, "{:?}", store.calls());
}

#[tokio::test]
async fn a_queue_full_of_bytes_makes_callers_wait() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.write_queue_bytes = 100);
    let (hold, first) = busy(&store, &worker).await;
    let fits = asked(worker.write(LIGHT, 99, false, set(1, "x"))).await;
    let waits = asked(worker.write(LIGHT, 1, false, set(2, "x"))).await;
    let larger_than_the_queue = asked(worker.write(LIGHT, usize::MAX, false, set(3, "x"))).await;
    drop(hold);
    for call in [first, fits, waits, larger_than_the_queue] {
        soon(call).await.unwrap();
    }
    // The first and the second fill the queue, so nothing else can have been in their batches.
    assert!(store.count(Call::Commit) >= 3, "{:?}", store.calls());
    assert!(store.row(3).is_some());
}

#[tokio::test]
async fn a_full_queue_of_reads_makes_callers_wait() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.read_queue_ops = 1);
    let hold = store.hold(Call::Read);
    let first = asked(worker.read(LIGHT, |_| 1)).await;
    let second = asked(worker.read(LIGHT, |_| 2)).await;
    soon(hold.reached(1)).await;
    drop(second);
    let third = asked(worker.read(LIGHT, |_| 3)).await;
    drop(hold);
    assert_eq!(soon(first).await.unwrap(), 1);
    assert_eq!(soon(third).await.unwrap(), 3);
    assert_eq!(store.count(Call::Read), 2, "the second never was in the queue");
}

#[tokio::test]
async fn a_caller_that_gives_up_before_there_is_room_leaves_nothing_behind() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.write_queue_bytes = 100);
    let (hold, first) = busy(&store, &worker).await;
    drop(asked(worker.write(LIGHT, 100, false, set(1, "x"))).await);
    let fits = asked(worker.write(LIGHT, 99, false, set(2, "x"))).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(fits).await.unwrap();
    soon(worker.write(LIGHT, 100, false, set(3, "the whole queue"))).await.unwrap();
    assert_eq!(store.row(1), None);
}

#[tokio::test]
async fn a_queued_operation_runs_though_its_caller_gave_up() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    drop(asked(worker.write(LIGHT, 1, false, set(1, "x"))).await);
    drop(asked(worker.sync()).await);
    drop(hold);
    soon(first).await.unwrap();
    until(|| store.count(Call::Sync) == 1).await;
    assert_eq!(store.row(1).unwrap(), b"x");
}
