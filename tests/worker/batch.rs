//! One commit for all that wait, a savepoint for each.

use std::sync::{Arc, Mutex, mpsc};

use acetate::delta::StoreError;
use acetate::worker::{Done, WorkError};

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
    // The first was alone in its batch, and needs none.
    assert_eq!(store.count(Call::Savepoint), 10);
    assert_eq!(store.count(Call::Release), 10);
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

#[tokio::test]
async fn a_batch_that_keeps_nothing_writes_nothing() {
    let store = FakeStore::default();
    let worker = start(&store);
    soon(worker.write(LIGHT, 1, false, set_and_regret(1))).await.unwrap();
    assert_eq!(store.count(Call::Commit), 0);
    assert_eq!(store.count(Call::Abort), 1);
    assert_eq!(store.count(Call::Sync), 0);
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
    let b = asked(worker.write(LIGHT, 1, false, |txn| -> Done<()> {
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
            let hook = move || {
                log.lock().unwrap().push((ino, store.row(ino).is_some()));
            };
            Done { value: (), keep, after_commit: Some(Box::new(hook)) }
        })
    };
    let mut a = asked(hooked(1, true)).await;
    let b = asked(hooked(2, false)).await;
    let c = asked(hooked(3, true)).await;
    let (go_on, gate) = mpsc::channel::<()>();
    let last = asked(worker.write(LIGHT, 1, false, move |_| {
        let hook = move || gate.recv().unwrap_or_default();
        Done { value: (), keep: true, after_commit: Some(Box::new(hook)) }
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
    let operation = move |_: &mut dyn WriteTxn| Done {
        value: 7,
        keep: true,
        after_commit: Some(Box::new(hook) as Box<dyn FnOnce() + Send>),
    };
    assert_eq!(soon(worker.write(LIGHT, 1, false, operation)).await.unwrap().value, 7);
    soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
}

#[tokio::test]
async fn hooks_do_not_run_when_the_commit_fails() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Commit, StoreError::Full("scripted".to_owned()));
    let ran = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&ran);
    let operation = move |_: &mut dyn WriteTxn| {
        let hook = move || *flag.lock().unwrap() = true;
        Done { value: (), keep: true, after_commit: Some(Box::new(hook)) }
    };
    assert!(soon(worker.write(LIGHT, 1, false, operation)).await.is_err());
    assert!(!*ran.lock().unwrap());
}
