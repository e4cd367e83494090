//! Snapshots.

use acetate::delta::{ReadTxn, StoreError, StoreErrorKind};
use acetate::worker::WorkError;

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

fn get(ino: u64) -> impl Fn(&dyn ReadTxn) -> Option<Vec<u8>> + Send + 'static {
    move |txn| txn.symlink(Ino(ino)).unwrap()
}

fn io() -> StoreError {
    StoreError::io("scripted")
}

#[tokio::test]
async fn a_read_sees_what_was_answered_before() {
    let store = FakeStore::default();
    let worker = start(&store);
    for value in ["a", "b", "c"] {
        soon(worker.write(LIGHT, 1, false, set(1, value))).await.unwrap();
        assert_eq!(soon(worker.read(LIGHT, get(1))).await.unwrap().unwrap(), value.as_bytes());
    }
}

#[tokio::test]
async fn reads_do_not_wait_for_a_commit() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    assert_eq!(soon(worker.read(LIGHT, get(0))).await.unwrap(), None);
    drop(hold);
    soon(first).await.unwrap();
}

#[tokio::test]
async fn as_many_reads_run_at_once_as_there_are_readers() {
    let store = FakeStore::default();
    let options = WorkerOptions { strict: false, readers: 3, callers: 0 };
    let worker = Worker::start(store.as_store(), options).unwrap();
    assert_eq!(store.count(Call::OpenReader), 0, "none is needed yet");
    let hold = store.hold(Call::Read);
    let mut reads = Vec::new();
    for _ in 0..4 {
        reads.push(asked(worker.read(LIGHT, get(1))).await);
    }
    soon(hold.reached(3)).await;
    assert_eq!((store.count(Call::Read), store.count(Call::OpenReader)), (3, 3));
    drop(hold);
    for read in reads {
        soon(read).await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_stays_its_own_reads() {
    let store = FakeStore::default();
    let worker = start(&store);
    let read = worker.read(LIGHT, |_| -> () { scripted_panic() });
    assert!(matches!(soon(read).await, Err(WorkError::Panicked)));
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
    assert_eq!(store.count(Call::OpenReader), 1, "its connection is as good as before");
}

#[tokio::test]
async fn a_failed_connection_is_opened_again() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Read, io());
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
    assert_eq!(store.count(Call::OpenReader), 2);
    assert_eq!(store.count(Call::CloseReader), 1);
}

#[tokio::test]
async fn a_read_fails_where_no_connection_works_and_the_next_is_tried() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Read, io());
    store.fail(Call::OpenReader, io());
    let answer = soon(worker.read(LIGHT, |_| 7)).await;
    assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io), "{answer:?}");
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
}

#[tokio::test]
async fn a_panic_of_the_store_leaves_the_thread_alive() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.panic_at(Call::Read);
    assert!(matches!(soon(worker.read(LIGHT, |_| 7)).await, Err(WorkError::Panicked)));
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
    assert_eq!(store.count(Call::OpenReader), 2);
}

#[tokio::test]
async fn a_store_without_readers_answers_with_its_error() {
    let store = FakeStore::default();
    let worker = start(&store);
    // A read tries twice.
    store.fail(Call::OpenReader, io());
    store.fail(Call::OpenReader, io());
    let answer = soon(worker.read(LIGHT, |_| 7)).await;
    assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io), "{answer:?}");
    assert_eq!(soon(worker.read(LIGHT, |_| 7)).await.unwrap(), 7);
}

/// A worker whose callers may read and write on their own threads.
fn with_a_caller(store: &FakeStore) -> Worker {
    let options = WorkerOptions { strict: false, readers: 2, callers: 1 };
    Worker::start(store.as_store(), options).unwrap()
}

#[tokio::test]
async fn reads_one_after_another_share_a_connection() {
    let store = FakeStore::default();
    let worker = with_a_caller(&store);
    for cost in [LIGHT, Cost::Offload, LIGHT, LIGHT, Cost::Offload, LIGHT] {
        soon(worker.read(cost, get(1))).await.unwrap();
    }
    assert_eq!(store.count(Call::OpenReader), 1);
}

#[tokio::test]
async fn a_worker_at_rest_has_no_connection_for_reads_until_the_next_one() {
    let store = FakeStore::default();
    let worker = with_a_caller(&store);
    soon(worker.write(LIGHT, 1, false, set(1, "a"))).await.unwrap();
    soon(worker.read(LIGHT, get(1))).await.unwrap();
    worker.rest();
    assert_eq!((store.open_connections(), store.count(Call::CloseReader)), (1, 1), "the writer's");
    assert_eq!(soon(worker.read(LIGHT, get(1))).await.unwrap().unwrap(), b"a");
    soon(worker.write(LIGHT, 1, false, set(1, "b"))).await.unwrap();
    soon(worker.shut_down()).await.unwrap();
    assert_eq!(store.open_connections(), 0);
    assert!(!store.closed_writer_early());
}
