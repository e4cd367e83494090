//! Changes that come in company: one caller commits for all.

use std::thread;
use std::time::Duration;

use acetate::worker::{
    CALLER_BATCH_OPS, CALLER_BATCHES, LONE_CHANGES, Limits, MAX_LEAD, Weight, Worker, WorkerOptions,
};

use super::fake::{Call, FakeStore};
use super::{LIGHT, Pending, asked, is_pending, set, soon, whereabouts};

const HEAVY: Weight = Weight::Heavy;

/// A leader that is never late.
const EVER: Duration = Duration::MAX;

/// A worker whose last two changes came together.
async fn in_company(store: &FakeStore, strict: bool, max_lead: Duration) -> Worker {
    let hour = Duration::from_secs(3600);
    let limits = Limits { sync_interval: hour, max_lead, ..Limits::default() };
    let options = WorkerOptions { strict, readers: 1, callers: 1 };
    let worker = Worker::start_with(store.as_store(), options, limits).unwrap();
    let hold = store.hold(Call::Commit);
    let first = asked(worker.write(HEAVY, 1, false, set(0, "first"))).await;
    soon(hold.reached(1)).await;
    let a = asked(worker.write(LIGHT, 1, false, set(0, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set(0, "b"))).await;
    drop(hold);
    for call in [first, a, b] {
        soon(call).await.unwrap();
    }
    worker
}

/// Asks for so many changes at once; whether each was made on this thread, and in how many
/// commits.
async fn made_here(store: &FakeStore, worker: &Worker, changes: usize) -> (Vec<bool>, usize) {
    let here = thread::current().id();
    // The writer thread may have answered, and not have turned away yet: then it makes them.
    soon(async {
        loop {
            let before = store.count(Call::Commit);
            let mut calls = Vec::new();
            for _ in 0..changes {
                calls.push(asked(worker.write(LIGHT, 1, false, whereabouts)).await);
            }
            let mut made = Vec::new();
            for call in calls {
                made.push(call.await.unwrap().value == here);
            }
            if made[0] {
                return (made, store.count(Call::Commit) - before);
            }
        }
    })
    .await
}

#[tokio::test]
async fn whoever_comes_first_commits_for_those_that_come_next() {
    let store = FakeStore::default();
    let worker = in_company(&store, false, EVER).await;
    let (made, commits) = made_here(&store, &worker, CALLER_BATCH_OPS).await;
    assert_eq!((&made[..], commits), (&[true; CALLER_BATCH_OPS][..], 1));
}

#[tokio::test]
async fn more_than_a_batch_or_two_is_left_to_the_thread() {
    let store = FakeStore::default();
    let worker = in_company(&store, false, EVER).await;
    let changes = CALLER_BATCHES * CALLER_BATCH_OPS + 1;
    let (made, _) = made_here(&store, &worker, changes).await;
    let (last, first) = made.split_last().unwrap();
    assert!(first.iter().all(|&here| here) && !last, "{made:?}");
}

#[tokio::test]
async fn what_is_synced_goes_to_the_thread() {
    for (strict, durable) in [(false, true), (true, false)] {
        let store = FakeStore::default();
        let worker = in_company(&store, strict, EVER).await;
        for _ in 0..4 {
            let change = soon(worker.write(LIGHT, 1, durable, whereabouts)).await.unwrap();
            assert!(change.durable);
            assert_ne!(change.value, thread::current().id(), "strict: {strict}");
        }
    }
}

#[tokio::test]
async fn a_leader_that_gives_up_leaves_all_to_the_thread() {
    let store = FakeStore::default();
    let worker = in_company(&store, false, EVER).await;
    let leader = asked(worker.write(LIGHT, 1, false, set(1, "leader"))).await;
    let next = asked(worker.write(LIGHT, 1, false, set(2, "next"))).await;
    drop(leader);
    soon(next).await.unwrap();
    assert_eq!(store.row(1).unwrap(), b"leader");
    assert_eq!(store.row(2).unwrap(), b"next");
}

#[tokio::test]
async fn nobody_waits_for_a_leader_that_is_held_up() {
    let store = FakeStore::default();
    let worker = in_company(&store, false, MAX_LEAD).await;
    let leader = asked(worker.write(LIGHT, 1, false, whereabouts)).await;
    let soon_after = asked(worker.write(LIGHT, 1, false, whereabouts)).await;
    thread::sleep(MAX_LEAD * 2);
    let late = asked(worker.write(LIGHT, 1, false, whereabouts)).await;
    for call in [late, soon_after, leader] {
        assert_ne!(soon(call).await.unwrap().value, thread::current().id());
    }
}

#[tokio::test]
async fn after_some_that_came_alone_a_change_is_made_at_once() {
    let store = FakeStore::default();
    let worker = in_company(&store, false, EVER).await;
    for _ in 0..LONE_CHANGES {
        soon(asked(worker.write(LIGHT, 1, false, set(1, "alone"))).await).await.unwrap();
    }
    soon(async {
        // The thread may have made the last of them, and not have turned away yet.
        loop {
            let call = worker.write(LIGHT, 1, false, set(1, "alone"));
            let mut call: Pending<'_, _> = Box::pin(call);
            if !is_pending(&mut call).await {
                break;
            }
            call.await.unwrap();
        }
    })
    .await;
}
