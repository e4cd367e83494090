//! When data reaches stable storage, and what that costs others.

use std::time::Instant;

use super::fake::{Call, FakeStore};
use super::*;

/// The calls that decide about durability.
fn steps(store: &FakeStore) -> Vec<Call> {
    let decides = |call: &Call| matches!(call, Call::Begin { .. } | Call::Commit | Call::Sync);
    store.calls().into_iter().filter(decides).collect()
}

const LAX: Call = Call::Begin { durable: false };
const DURABLE: Call = Call::Begin { durable: true };

#[tokio::test]
async fn a_sync_comes_after_all_that_was_asked_before_it() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let sync = asked(worker.sync()).await;
    drop(hold);
    soon(sync).await.unwrap();
    assert_eq!(steps(&store), [LAX, Call::Commit, LAX, Call::Commit, Call::Sync]);
    soon(first).await.unwrap();
    soon(a).await.unwrap();
}

#[tokio::test]
async fn waiting_syncs_share_one() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let mut syncs = Vec::new();
    for _ in 0..10 {
        syncs.push(asked(worker.sync()).await);
    }
    drop(hold);
    soon(first).await.unwrap();
    for sync in syncs {
        soon(sync).await.unwrap();
    }
    assert_eq!(store.count(Call::Sync), 1);
}

#[tokio::test]
async fn a_sync_is_not_answered_before_it_is_done() {
    let store = FakeStore::default();
    let worker = start(&store);
    let hold = store.hold(Call::Sync);
    let mut sync = asked(worker.sync()).await;
    soon(hold.reached(1)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(is_pending(&mut sync).await);
    drop(hold);
    soon(sync).await.unwrap();
}

#[tokio::test]
async fn a_durable_batch_serves_the_syncs_in_it() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let sync = asked(worker.sync()).await;
    let durable = asked(worker.write(LIGHT, 1, true, set(1, "a"))).await;
    let behind = asked(worker.write(LIGHT, 1, false, set(2, "b"))).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(sync).await.unwrap();
    assert!(soon(durable).await.unwrap().durable);
    // It had to wait for the sync anyway, so it may as well be part of it.
    assert!(soon(behind).await.unwrap().durable);
    assert_eq!(steps(&store), [LAX, Call::Commit, DURABLE, Call::Commit]);
}

#[tokio::test]
async fn what_stands_before_a_durable_operation_does_not_wait_for_its_sync() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let before = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let durable = asked(worker.write(LIGHT, 1, true, set(2, "b"))).await;
    drop(hold);
    soon(first).await.unwrap();
    assert!(!soon(before).await.unwrap().durable);
    assert!(soon(durable).await.unwrap().durable);
    assert_eq!(steps(&store), [LAX, Call::Commit, LAX, Call::Commit, DURABLE, Call::Commit]);
}

#[tokio::test]
async fn strict_syncs_every_batch() {
    let store = FakeStore::default();
    let options = WorkerOptions { strict: true, readers: 1, callers: 0 };
    let worker = Worker::start(store.as_store(), options).unwrap();
    assert!(soon(worker.write(LIGHT, 1, false, set(1, "a"))).await.unwrap().durable);
    assert_eq!(steps(&store), [DURABLE, Call::Commit]);
}

#[tokio::test]
async fn the_timer_syncs_what_nobody_asked_to_sync() {
    let interval = Duration::from_millis(50);
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.sync_interval = interval);
    tokio::time::sleep(2 * interval).await;
    assert_eq!(store.count(Call::Sync), 0, "nothing was committed");
    let asked_at = Instant::now();
    soon(worker.write(LIGHT, 1, false, set(1, "a"))).await.unwrap();
    until(|| store.count(Call::Sync) == 1).await;
    assert!(asked_at.elapsed() >= interval);
    tokio::time::sleep(4 * interval).await;
    assert_eq!(store.count(Call::Sync), 1, "nothing was committed since");
}

#[tokio::test]
async fn the_timer_fires_under_steady_load_too() {
    let interval = Duration::from_millis(20);
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.sync_interval = interval);
    soon(async {
        while store.count(Call::Sync) < 3 {
            worker.write(LIGHT, 1, false, set(1, "a")).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn the_timer_has_nothing_to_do_after_a_durable_commit() {
    let interval = Duration::from_millis(20);
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.sync_interval = interval);
    soon(worker.write(LIGHT, 1, false, set(1, "a"))).await.unwrap();
    soon(worker.write(LIGHT, 1, true, set(2, "b"))).await.unwrap();
    tokio::time::sleep(5 * interval).await;
    assert!(steps(&store).ends_with(&[DURABLE, Call::Commit]), "{:?}", steps(&store));
}

#[tokio::test]
async fn the_timer_tries_again_after_a_full_disk() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.sync_interval = Duration::from_millis(20));
    store.fail(Call::Sync, acetate::delta::StoreError::full("scripted"));
    soon(worker.write(LIGHT, 1, false, set(1, "a"))).await.unwrap();
    until(|| store.count(Call::Sync) == 2).await;
    soon(worker.write(LIGHT, 1, false, set(2, "b"))).await.unwrap();
}
