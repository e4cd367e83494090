//! Counting what the session takes, between two changes.

use std::sync::{Arc, Mutex};

use acetate::delta::{StoreError, StoreErrorKind, UsageDelta};

use super::failure_kind;
use super::fake::{Call, FakeStore};
use super::*;

#[tokio::test]
async fn it_counts_what_is_committed_before_the_next_change() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let heard = Arc::new(Mutex::new(None));
    let hears = heard.clone();
    let same_batch = asked(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    let count = asked(worker.count_usage(move |sum| *hears.lock().unwrap() = Some(sum))).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(same_batch).await.unwrap();
    soon(count).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), Some(UsageDelta { bytes: 0, files: 2 }));
    assert_eq!(store.count(Call::Count), 1);
    let begun = store.calls().iter().filter(|call| matches!(call, Call::Begin { .. })).count();
    assert_eq!(begun, 2, "counting alone begins nothing");
}

#[tokio::test]
async fn a_count_that_fails_is_told_and_ends_nothing() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Count, StoreError::busy("busy"));
    let counted = soon(worker.count_usage(|_| panic!("there is none"))).await;
    assert_eq!(failure_kind(&counted), Some(StoreErrorKind::Busy), "{counted:?}");
    soon(worker.count_usage(|_| scripted_panic())).await.unwrap_err();
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
}

#[tokio::test]
async fn what_takes_no_changes_is_not_counted() {
    let worker = start(&FakeStore::read_only());
    let counted = soon(worker.count_usage(|_| panic!("there is none"))).await;
    assert!(matches!(counted, Err(WorkError::ReadOnly)));
}
