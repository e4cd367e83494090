//! One commit for all that wait, and what happens where a part of it is not kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use acetate::delta::StoreError;
use acetate::worker::{OpResult, WorkError};

use super::fake::{Call, FakeStore};
use super::*;

#[tokio::test]
async fn what_waits_during_a_commit_shares_the_next_one() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let mut rest = Vec::new();
    for ino in 1..=10 {
        rest.push(asked(worker.write(LIGHT, 1, false, set(ino, "x"))).await);
    }
    drop(hold);
    soon(first).await.unwrap();
    for (ino, call) in (1..).zip(rest) {
        let answer = soon(call).await.unwrap();
        assert_eq!((answer.value, answer.durable), (ino, false));
        assert_eq!(store.row(ino).unwrap(), b"x");
    }
    assert_eq!(store.count(Call::Commit), 2);
    // All are kept: none has to be undone alone.
    assert_eq!(store.count(Call::Savepoint), 0);
}

#[tokio::test]
async fn no_answer_leaves_before_the_commit() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, mut first) = busy(&store, &worker).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(is_pending(&mut first).await);
    assert_eq!(store.row(0), None);
    drop(hold);
    soon(first).await.unwrap();
    assert_eq!(store.row(0).unwrap(), b"first");
}

#[tokio::test]
async fn a_batch_is_bounded_in_operations_and_bytes() {
    let store = FakeStore::default();
    let worker = start_with(&store, |limits| {
        limits.batch_ops = 3;
        limits.batch_bytes = 100;
    });
    let (hold, first) = busy(&store, &worker).await;
    let mut rest = Vec::new();
    // 3 operations; 40 + 60 bytes; 1 + 2 bytes; 1,000 bytes alone; the last.
    for bytes in [1, 1, 1, 40, 60, 1, 2, 1000, 1] {
        rest.push(asked(worker.write(LIGHT, bytes, false, set(1, "x"))).await);
    }
    drop(hold);
    soon(first).await.unwrap();
    for call in rest {
        soon(call).await.unwrap();
    }
    assert_eq!(store.count(Call::Commit), 1 + 5);
}

#[tokio::test]
async fn rolling_one_back_keeps_the_others() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await;
    let c = asked(worker.write(LIGHT, 1, false, set(3, "c"))).await;
    drop(hold);
    soon(first).await.unwrap();
    let answers = [soon(a).await, soon(b).await, soon(c).await].map(|a| a.unwrap().value);
    assert_eq!(answers, [1, 2, 3]);
    assert_eq!((store.row(1), store.row(2), store.row(3)), {
        (Some(b"a".to_vec()), None, Some(b"c".to_vec()))
    });
    assert_eq!(store.count(Call::Commit), 2);
    assert_eq!(store.count(Call::RollBack), 1);
}

/// A change of the row `ino`, kept or not, that counts how often it runs.
fn counted(
    ino: u64,
    keep: bool,
    runs: &Arc<AtomicUsize>,
) -> impl FnMut(&mut dyn WriteTxn) -> OpResult<u64> + Send + 'static {
    let runs = Arc::clone(runs);
    move |txn| {
        runs.fetch_add(1, Ordering::SeqCst);
        txn.put_symlink(Ino(ino), b"x").unwrap();
        OpResult { value: ino, commit: keep, after_commit: None }
    }
}

/// Makes a batch of changes, all of them kept or not; how often they ran, one after the other.
async fn batch_of(store: &FakeStore, worker: &Worker, keeps: &[bool]) -> Vec<usize> {
    let (hold, first) = busy(store, worker).await;
    let runs: Vec<_> = keeps.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let mut calls = Vec::new();
    for ((keep, runs), ino) in keeps.iter().zip(&runs).zip(1..) {
        calls.push(asked(worker.write(LIGHT, 1, false, counted(ino, *keep, runs))).await);
    }
    drop(hold);
    soon(first).await.unwrap();
    for (call, ino) in calls.into_iter().zip(1..) {
        assert_eq!(soon(call).await.unwrap().value, ino);
    }
    runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect()
}

#[tokio::test]
async fn a_batch_begins_anew_where_a_part_of_it_is_to_be_undone() {
    let store = FakeStore::default();
    let worker = start(&store);
    assert_eq!(batch_of(&store, &worker, &[true, false, true]).await, [2, 2, 1]);
    assert!(store.row(1).is_some() && store.row(2).is_none() && store.row(3).is_some());
    assert_eq!(store.count(Call::Savepoint), 3);
    // The first of `busy`, what was given up, and the same once more.
    assert_eq!(store.count(Call::Begin { durable: false }), 3);
    assert_eq!(store.count(Call::Abort), 1);
}

#[tokio::test]
async fn what_changes_nothing_needs_not_be_undone() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let refused = |_: &mut dyn WriteTxn| OpResult { value: (), commit: false, after_commit: None };
    let b = asked(worker.write(LIGHT, 1, false, refused)).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(b).await.unwrap();
    assert_eq!(soon(a).await.unwrap().value, 1);
    assert!(store.row(1).is_some());
    assert_eq!((store.count(Call::Savepoint), store.count(Call::Abort)), (0, 0));
}

#[tokio::test]
async fn the_next_batches_have_savepoints_from_the_beginning() {
    let store = FakeStore::default();
    let worker = start(&store);
    batch_of(&store, &worker, &[true, false]).await;
    let mut wary = 0;
    while batch_of(&store, &worker, &[true, false]).await == [1, 1] {
        wary += 1;
        assert!(wary < 100, "for good");
    }
    // It says how many in the limits, and the batch that began anew is one of them.
    assert_eq!(wary, 7);
}

#[tokio::test]
async fn hooks_of_a_batch_that_begins_anew_run_once() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let held = Arc::new(());
    let ran = Arc::new(AtomicUsize::new(0));
    let (kept, runs) = (Arc::clone(&held), Arc::clone(&ran));
    let hooked = asked(worker.write(LIGHT, 1, false, move |txn| {
        let others = Arc::strong_count(&kept);
        let (alive, runs) = (Arc::clone(&kept), Arc::clone(&runs));
        let hook = move || {
            drop(alive);
            runs.fetch_add(1, Ordering::SeqCst);
        };
        txn.put_symlink(Ino(1), b"x").unwrap();
        OpResult { value: others, commit: true, after_commit: Some(Box::new(hook)) }
    }))
    .await;
    let regretted = asked(worker.write(LIGHT, 1, false, set_and_regret(2))).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(regretted).await.unwrap();
    // When it ran again, the hook of the first time was gone.
    assert_eq!(soon(hooked).await.unwrap().value, 2);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_batch_that_keeps_nothing_writes_nothing() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set_and_regret(1))).await.unwrap();
    assert_eq!(store.count(Call::Commit), 0);
    assert_eq!(store.count(Call::Abort), 1);
    assert_eq!(store.count(Call::Sync), 0);
    store.leave_unsynced(1);
    // A durable answer still promises that everything before it is synced.
    let answer = soon(worker.write(LIGHT, 1, true, set_and_regret(1))).await.unwrap();
    assert!(answer.durable);
    assert_eq!(store.count(Call::Sync), 1);
}

#[tokio::test]
async fn a_panic_stays_its_own_operations() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let b = asked(worker.write(LIGHT, 1, false, move |txn| -> OpResult<()> {
        counted.fetch_add(1, Ordering::SeqCst);
        txn.put_symlink(Ino(2), b"half done").unwrap();
        scripted_panic();
    }))
    .await;
    let c = asked(worker.write(LIGHT, 1, false, set(3, "c"))).await;
    drop(hold);
    soon(first).await.unwrap();
    assert!(soon(a).await.is_ok());
    assert!(matches!(soon(b).await, Err(WorkError::Panicked)));
    assert!(soon(c).await.is_ok());
    assert_eq!(store.row(2), None);
    assert!(store.row(1).is_some() && store.row(3).is_some());
    assert_eq!(runs.load(Ordering::SeqCst), 1, "nobody knows what a second time would do");
    soon(worker.write(LIGHT, 1, false, set(4, "later"))).await.unwrap();
}

#[tokio::test]
async fn hooks_run_in_order_between_commit_and_answers() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (hold, first) = busy(&store, &worker).await;
    let log = Arc::new(Mutex::new(Vec::new()));
    let hooked = |ino: u64, keep: bool| {
        let (log, store) = (Arc::clone(&log), store.clone());
        worker.write(LIGHT, 1, false, move |txn| {
            txn.put_symlink(Ino(ino), b"x").unwrap();
            let (log, store) = (Arc::clone(&log), store.clone());
            let hook = move || {
                log.lock().unwrap().push((ino, store.row(ino).is_some()));
            };
            OpResult { value: (), commit: keep, after_commit: Some(Box::new(hook)) }
        })
    };
    let mut a = asked(hooked(1, true)).await;
    let b = asked(hooked(2, false)).await;
    let c = asked(hooked(3, true)).await;
    let (go_on, gate) = mpsc::channel::<()>();
    let mut gate = Some(gate);
    let last = asked(worker.write(LIGHT, 1, false, move |_| {
        let gate = gate.take();
        let hook = move || gate.map_or((), |gate| gate.recv().unwrap_or_default());
        OpResult { value: (), commit: true, after_commit: Some(Box::new(hook)) }
    }))
    .await;
    drop(hold);
    soon(first).await.unwrap();
    until(|| log.lock().unwrap().len() == 2).await;
    assert!(is_pending(&mut a).await, "answered before all hooks of the batch ran");
    drop(go_on);
    for call in [a, b, c, last] {
        soon(call).await.unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [(1, true), (3, true)]);
}

#[tokio::test]
async fn a_panicking_hook_harms_nobody() {
    let store = FakeStore::default();
    let worker = start(&store);
    let hook = || -> () { scripted_panic() };
    let operation = move |_: &mut dyn WriteTxn| OpResult {
        value: 7,
        commit: true,
        after_commit: Some(Box::new(hook) as Box<dyn FnOnce() + Send>),
    };
    assert_eq!(soon(worker.write(LIGHT, 1, false, operation)).await.unwrap().value, 7);
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
}

#[tokio::test]
async fn hooks_do_not_run_when_the_commit_fails() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Commit, StoreError::full("scripted"));
    let ran = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&ran);
    let operation = move |_: &mut dyn WriteTxn| {
        let flag = Arc::clone(&flag);
        let hook = move || *flag.lock().unwrap() = true;
        OpResult { value: (), commit: true, after_commit: Some(Box::new(hook)) }
    };
    assert!(soon(worker.write(LIGHT, 1, false, operation)).await.is_err());
    assert!(!*ran.lock().unwrap());
}
