//! The end: all that was queued is done, then the session is closed.

use acetate::delta::{StoreError, StoreErrorKind};
use acetate::worker::WorkError;

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

#[tokio::test]
async fn shutting_down_finishes_what_is_queued_and_closes() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let queued = asked(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    let mut end = asked(worker.shut_down()).await;
    let refused = soon(worker.write(LIGHT, 1, false, set(2, "x"))).await;
    assert!(matches!(refused, Err(WorkError::ShuttingDown)), "{refused:?}");
    assert!(matches!(soon(worker.read(LIGHT, |_| ())).await, Err(WorkError::ShuttingDown)));
    assert!(matches!(soon(worker.sync()).await, Err(WorkError::ShuttingDown)));
    assert!(is_pending(&mut end).await);
    drop(hold);
    soon(end).await.unwrap();
    soon(first).await.unwrap();
    soon(queued).await.unwrap();
    assert!(store.row(1).is_some() && store.row(2).is_none());
    assert!(store.calls().ends_with(&[Call::Sync, Call::Close]));
}

#[tokio::test]
async fn shutting_down_again_gives_the_same_answer() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Close, StoreError::full("scripted"));
    for _ in 0..2 {
        let end = soon(worker.shut_down()).await;
        assert_eq!(failure_kind(&end), Some(StoreErrorKind::Full), "{end:?}");
    }
    let (a, b) = tokio::join!(worker.shut_down(), worker.shut_down());
    assert!(a.is_err() && b.is_err());
    assert_eq!(store.count(Call::Close), 1);
}

#[tokio::test]
async fn callers_that_wait_for_room_are_refused() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| limits.write_queue_ops = 1);
    let (hold, first) = busy(&store, &worker).await;
    let waits = asked(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    let end = asked(worker.shut_down()).await;
    assert!(matches!(soon(waits).await, Err(WorkError::ShuttingDown)));
    drop(hold);
    soon(first).await.unwrap();
    soon(end).await.unwrap();
    assert_eq!(store.row(1), None);
}

#[tokio::test]
async fn a_running_read_is_finished_first() {
    let store = FakeStore::default();
    let worker = start(&store);
    let hold = store.hold(Call::Read);
    let running = asked(worker.read(LIGHT, |_| 1)).await;
    let queued = asked(worker.read(LIGHT, |_| 2)).await;
    soon(hold.reached(1)).await;
    let end = asked(worker.shut_down()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.count(Call::Close), 0);
    drop(hold);
    assert_eq!(soon(running).await.unwrap(), 1);
    assert_eq!(soon(queued).await.unwrap(), 2);
    soon(end).await.unwrap();
    // The last connection folds the log into the file: that must be the writer's.
    assert!(store.calls().ends_with(&[Call::CloseReader, Call::Sync, Call::Close]));
}

#[tokio::test]
async fn a_sync_that_fails_at_the_end_moves_the_epoch() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
    store.fail(Call::Sync, StoreError::io("scripted"));
    assert!(soon(worker.shut_down()).await.is_err());
    assert_eq!((store.count(Call::AdvanceEpoch), store.count(Call::Close)), (1, 0));
}

#[tokio::test]
async fn dropping_the_worker_ends_its_threads_and_closes() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.read(LIGHT, |_| ())).await.unwrap();
    let (hold, first) = busy(&store, &worker).await;
    drop(first);
    drop(asked(worker.write(LIGHT, 1, false, set(1, "x"))).await);
    drop(worker);
    drop(hold);
    until(|| store.count(Call::Close) == 1).await;
    assert!(store.row(1).is_some());
    assert_eq!(store.count(Call::CloseReader), 1);
}
