//! What a failing store costs: one batch, or the right to write.

use acetate::delta::{StoreError, StoreErrorKind};
use acetate::vfs::WriteVerifier;
use acetate::worker::WorkError;

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

const BEGIN: Call = Call::Begin { durable: false };

fn io() -> StoreError {
    StoreError::io("scripted")
}

fn full() -> StoreError {
    StoreError::full("scripted")
}

fn verifier(epoch: u64) -> WriteVerifier {
    WriteVerifier(epoch.to_be_bytes())
}

fn damaged() -> StoreError {
    StoreError::corrupt("scripted")
}

async fn assert_writable(worker: &Worker) {
    soon(worker.write(LIGHT, 1, false, set(9, "still works"))).await.unwrap();
}

async fn assert_read_only(worker: &Worker) {
    let answer = soon(worker.write(LIGHT, 1, false, set(9, "x"))).await;
    assert!(matches!(answer, Err(WorkError::ReadOnly)), "{answer:?}");
    assert!(matches!(soon(worker.sync()).await, Err(WorkError::ReadOnly)));
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
}

#[tokio::test]
async fn a_failed_commit_fails_all_of_its_batch() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await;
    // The held commit meets the first fault, the batch of the two the second.
    store.fail(Call::Commit, StoreError::busy("scripted"));
    store.fail(Call::Commit, full());
    drop(hold);
    assert_eq!(failure_kind(&soon(first).await), Some(StoreErrorKind::Busy));
    for call in [a, b] {
        assert_eq!(failure_kind(&soon(call).await), Some(StoreErrorKind::Full));
    }
    assert_eq!((store.row(0), store.row(1)), (None, None));
    assert_eq!(worker.verifier(), verifier(0));
    assert_writable(&worker).await;
}

#[tokio::test]
async fn an_early_failure_costs_one_batch() {
    for call in [BEGIN, Call::Savepoint, Call::Release, Call::RollBack] {
        let store = FakeStore::default();
        let worker = start(&store);
        let (hold, first) = busy(&store, &worker).await;
        let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
        let b = asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await;
        store.fail(call, io());
        drop(hold);
        soon(first).await.unwrap();
        for answer in [soon(a).await, soon(b).await] {
            assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io), "{call:?}");
        }
        assert_eq!(store.row(1), None, "{call:?}");
        assert_writable(&worker).await;
        assert_eq!(worker.verifier(), verifier(0));
    }
}

#[tokio::test]
async fn what_a_background_thread_lost_ends_writing_with_the_next_batch() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "answered, and not synced"))).await.unwrap();
    store.poison_at(BEGIN, io());
    let answer = soon(worker.write(LIGHT, 1, false, set(2, "b"))).await;
    assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io), "{answer:?}");
    assert_read_only(&worker).await;
    assert_eq!(worker.verifier(), verifier(1), "a client writes the first change again");
}

#[tokio::test]
async fn a_batch_that_is_lost_with_one_that_is_kept_costs_no_more() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set(2, "b"))).await;
    store.fail(Call::CheckBatch, io());
    drop(hold);
    soon(first).await.unwrap();
    for answer in [soon(a).await, soon(b).await] {
        assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io));
    }
    assert_eq!((store.row(1), store.row(2)), (None, None));
    assert_eq!(store.count(Call::Commit), 1);
    assert_writable(&worker).await;
}

#[tokio::test]
async fn a_batch_that_is_lost_with_one_that_is_refused_begins_anew() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let refused = |_: &mut dyn WriteTxn| OpResult { value: (), commit: false, after_commit: None };
    let a = asked(worker.write(LIGHT, 1, false, refused)).await;
    let b = asked(worker.write(LIGHT, 1, false, set(2, "b"))).await;
    store.fail(Call::CheckBatch, io());
    drop(hold);
    soon(first).await.unwrap();
    soon(a).await.unwrap();
    soon(b).await.unwrap();
    assert!(store.row(2).is_some());
    assert_eq!((store.count(Call::Abort), store.count(Call::Savepoint)), (1, 2));
    assert_writable(&worker).await;
}

#[tokio::test]
async fn an_io_error_of_a_commit_ends_writing() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "not synced"))).await.unwrap();
    let (hold, first) = busy(&store, &worker).await;
    let next = asked(worker.write(LIGHT, 1, false, set(2, "never tried"))).await;
    store.fail(Call::Commit, io());
    drop(hold);
    assert_eq!(failure_kind(&soon(first).await), Some(StoreErrorKind::Io));
    assert!(matches!(soon(next).await, Err(WorkError::ReadOnly)));
    // Row 1 was answered and not synced: its client must hear that it may be gone.
    assert_eq!(worker.verifier(), verifier(1));
    assert_read_only(&worker).await;
    assert_eq!(store.count(BEGIN), 2, "nothing more reaches the store");
    assert!(matches!(soon(worker.shut_down()).await, Err(WorkError::ReadOnly)));
    assert_eq!(store.count(Call::Close), 0, "not a clean end");
}

#[tokio::test]
async fn the_verifier_stays_where_nothing_unsynced_was_answered() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, true, set(1, "synced"))).await.unwrap();
    store.fail(Call::Commit, io());
    assert!(soon(worker.write(LIGHT, 1, false, set(2, "x"))).await.is_err());
    assert_eq!(worker.verifier(), verifier(0));
    assert_eq!(store.count(Call::AdvanceEpoch), 0);
    assert_read_only(&worker).await;
}

#[tokio::test]
async fn damage_ends_writing_wherever_it_shows() {
    for call in [BEGIN, Call::Commit] {
        let store = FakeStore::default();
        let worker = start(&store);
        store.fail(call, damaged());
        let answer = soon(worker.write(LIGHT, 1, false, set(1, "x"))).await;
        assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Corrupt), "{call:?}");
        assert_read_only(&worker).await;
    }
}

#[tokio::test]
async fn damage_that_a_savepoint_finds_ends_writing() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await;
    store.fail(Call::Savepoint, damaged());
    drop(hold);
    soon(first).await.unwrap();
    for answer in [soon(a).await, soon(b).await] {
        assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Corrupt));
    }
    assert_read_only(&worker).await;
}

#[tokio::test]
async fn a_failed_abort_ends_writing() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Abort, io());
    assert!(soon(worker.write(LIGHT, 1, false, set_and_regret(1))).await.is_err());
    assert_read_only(&worker).await;
}

#[tokio::test]
async fn a_failed_sync_moves_the_verifier_and_ends_writing() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
    store.fail(Call::Sync, io());
    assert_eq!(failure_kind(&soon(worker.sync()).await), Some(StoreErrorKind::Io));
    assert_eq!(worker.verifier(), verifier(1));
    assert_read_only(&worker).await;
}

#[tokio::test]
async fn a_full_disk_at_a_sync_loses_nothing() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
    store.fail(Call::Sync, full());
    assert_eq!(failure_kind(&soon(worker.sync()).await), Some(StoreErrorKind::Full));
    assert_eq!(worker.verifier(), verifier(0));
    assert_writable(&worker).await;
    assert_eq!(soon(worker.sync()).await.unwrap(), verifier(0));
}

#[tokio::test]
async fn a_sync_is_tried_alone_where_its_batch_failed() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let durable = asked(worker.write(LIGHT, 1, true, set(1, "x"))).await;
    let sync = asked(worker.sync()).await;
    store.fail(BEGIN, full());
    drop(hold);
    soon(first).await.unwrap();
    assert!(soon(durable).await.is_err());
    assert_eq!(soon(sync).await.unwrap(), verifier(0));
    assert_eq!(store.count(Call::Sync), 1);
}

#[tokio::test]
async fn nobody_waits_in_vain_when_the_store_panics() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let next = asked(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    store.panic_at(Call::Commit);
    drop(hold);
    assert!(matches!(soon(first).await, Err(WorkError::Panicked)));
    assert!(matches!(soon(next).await, Err(WorkError::Panicked)));
    assert!(soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.is_err());
    assert!(soon(worker.shut_down()).await.is_err());
}

#[tokio::test]
async fn a_read_only_session_serves_reads() {
    let store = FakeStore::read_only();
    let worker = start(&store);
    assert_read_only(&worker).await;
    soon(worker.shut_down()).await.unwrap();
}
