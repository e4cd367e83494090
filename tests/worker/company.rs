//! Changes that come in company: the writer thread commits for all.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use acetate::worker::{Cost, Limits, SOLO_WRITES, Worker, WorkerOptions};

use super::fake::{Call, FakeStore};
use super::{LIGHT, asked, set, soon, whereabouts};

/// A worker whose last two changes came together.
async fn in_company(store: &FakeStore) -> Worker {
    let limits = Limits { sync_interval: Duration::from_secs(3600), ..Limits::default() };
    let options = WorkerOptions { strict: false, readers: 1, callers: 1 };
    let worker = Worker::start_with(store.as_store(), options, limits).unwrap();
    let hold = store.hold(Call::Commit);
    let first = asked(worker.write(Cost::Offload, 1, false, set(0, "first"))).await;
    soon(hold.reached(1)).await;
    let a = asked(worker.write(LIGHT, 1, false, set(0, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, set(0, "b"))).await;
    drop(hold);
    for call in [first, a, b] {
        soon(call).await.unwrap();
    }
    worker
}

/// Whether a change is made on this thread.
async fn makes_here(worker: &Worker) -> bool {
    let change = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
    change.value == thread::current().id()
}

#[tokio::test]
async fn the_next_ones_go_to_the_thread_and_those_after_some_that_came_alone_do_not() {
    let store = FakeStore::default();
    let worker = in_company(&store).await;
    for _ in 0..SOLO_WRITES {
        assert!(!makes_here(&worker).await);
    }
    // The thread may have answered the last of them, and not have turned away yet.
    soon(async { while !makes_here(&worker).await {} }).await;
}

#[tokio::test]
async fn changes_that_meet_on_callers_threads_are_company() {
    // The thread, which has just begun, may take the first one: then they do not meet.
    for _ in 0..100 {
        if meet().await {
            return;
        }
    }
    panic!("no caller ever made its change");
}

/// Lets a change come while another caller commits; whether that happened.
async fn meet() -> bool {
    let store = FakeStore::default();
    let options = WorkerOptions { strict: false, readers: 1, callers: 1 };
    let worker = Arc::new(Worker::start(store.as_store(), options).unwrap());
    let hold = store.hold(Call::Commit);
    let caller = thread::spawn({
        let worker = Arc::clone(&worker);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        move || runtime.block_on(makes_here(&worker))
    });
    soon(hold.reached(1)).await;
    // Nobody waits on its own thread for another caller.
    let meanwhile = asked(worker.write(LIGHT, 1, false, whereabouts)).await;
    let there = caller.thread().id();
    drop(hold);
    let made_at = soon(meanwhile).await.unwrap().value;
    assert_ne!(made_at, there, "callers make their own changes only");
    if !caller.join().unwrap() {
        return false;
    }
    let next = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
    assert_eq!(next.value, made_at, "by the writer thread again");
    true
}
