//! Sessions that share threads: what they cost, their shares, and what is left when they end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use acetate::delta::{BackgroundThreads, ReadTxn, StoreError};
use acetate::worker::{MAX_BACKGROUND_RUNS, STUCK, ThreadWatch, WorkerPool};

use super::fake::{Call, FakeStore};
use super::*;

const HEAVY: Cost = Cost::Offload;

fn pool(threads: usize) -> Arc<WorkerPool> {
    WorkerPool::new(threads, ThreadWatch::new(1, None))
}

fn join(pool: &Arc<WorkerPool>, store: &FakeStore, readers: usize) -> Arc<Worker> {
    // A batch has one operation: each is a slice of its own.
    let limits = Limits { batch_ops: 1, ..Limits::default() };
    let options = WorkerOptions { strict: false, readers, callers: 1 };
    Arc::new(Worker::start_in(pool, store.as_store(), options, limits).unwrap())
}

/// Holds operations up until it is dropped.
struct Held {
    _hold: mpsc::Sender<()>,
}

/// An operation that is held up, and tells when it began.
fn held() -> (Held, impl Fn() + Clone + Send + Sync + 'static, Arc<AtomicUsize>) {
    let (hold, held) = mpsc::channel::<()>();
    let (held, began) = (Arc::new(Mutex::new(held)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&began);
    let wait = move || {
        count.fetch_add(1, Ordering::SeqCst);
        while let Err(mpsc::RecvTimeoutError::Timeout) =
            held.lock().unwrap().recv_timeout(Duration::from_millis(1))
        {
            thread::sleep(Duration::from_millis(1));
        }
    };
    (Held { _hold: hold }, wait, began)
}

/// Lets `reads` reads and a change of a session be held up; returns once all have begun.
async fn hang(
    worker: &Arc<Worker>,
    reads: usize,
) -> (Held, Vec<tokio::task::JoinHandle<Result<(), WorkError>>>) {
    let (hold, wait, began) = held();
    let mut calls = Vec::new();
    for _ in 0..reads {
        let (worker, wait) = (Arc::clone(worker), wait.clone());
        calls.push(tokio::spawn(async move { worker.read(HEAVY, move |_| wait()).await }));
    }
    let worker = Arc::clone(worker);
    calls.push(tokio::spawn(async move {
        let change = move |_: &mut dyn WriteTxn| {
            wait();
            OpResult { value: (), commit: true, after_commit: None }
        };
        worker.write(HEAVY, 1, false, change).await.map(drop)
    }));
    until(|| began.load(Ordering::SeqCst) == reads + 1).await;
    (hold, calls)
}

#[tokio::test]
async fn threads_do_not_grow_with_sessions() {
    let pool = pool(3);
    let stores: Vec<_> = (0..50).map(|_| FakeStore::default()).collect();
    let workers: Vec<_> = stores.iter().map(|store| join(&pool, store, 4)).collect();
    assert_eq!(pool.threads(), 1, "no more than it takes to know that there are any");
    for _ in 0..3 {
        let mut calls = Vec::new();
        for (at, worker) in workers.iter().enumerate() {
            let worker = Arc::clone(worker);
            let change = async move { worker.write(HEAVY, 1, false, set(1, "x")).await };
            calls.push(tokio::spawn(change));
            tokio::task::yield_now().await;
            assert!(pool.threads() <= 3, "session {at}");
        }
        for call in calls {
            soon(call).await.unwrap().unwrap();
        }
        for worker in &workers {
            soon(worker.read(HEAVY, |_| ())).await.unwrap();
        }
    }
    assert!(pool.threads() <= 3);
}

#[tokio::test]
async fn an_idle_session_has_no_connection_but_the_writers() {
    let (pool, store) = (pool(2), FakeStore::default());
    let worker = join(&pool, &store, 4);
    soon(worker.write(HEAVY, 1, true, set(1, "x"))).await.unwrap();
    assert_eq!(store.open_connections(), 1);
    for _ in 0..10 {
        soon(worker.read(HEAVY, |_| ())).await.unwrap();
    }
    assert_eq!(store.open_connections(), 2, "reads one after the other need one");
}

/// Which session an operation belonged to, in the order in which they ran.
type Order = Arc<Mutex<Vec<u8>>>;

#[tokio::test]
async fn a_session_that_floods_its_queue_leaves_another_its_share() {
    let pool = pool(1);
    let (flooded, other) = (FakeStore::default(), FakeStore::default());
    let (a, b) = (join(&pool, &flooded, 2), join(&pool, &other, 2));
    let order = Order::default();
    let change = |name: u8| {
        let order = Arc::clone(&order);
        move |_: &mut dyn WriteTxn| {
            order.lock().unwrap().push(name);
            OpResult { value: (), commit: true, after_commit: None }
        }
    };
    let read = |name: u8| {
        let order = Arc::clone(&order);
        move |_: &dyn ReadTxn| order.lock().unwrap().push(name)
    };
    let hold = flooded.hold(Call::Commit);
    let mut changes = vec![asked(a.write(HEAVY, 1, false, change(b'a'))).await];
    soon(hold.reached(1)).await;
    let mut reads = Vec::new();
    for _ in 0..40 {
        changes.push(asked(a.write(HEAVY, 1, false, change(b'a'))).await);
        reads.push(asked(a.read(HEAVY, read(b'a'))).await);
        // Within one turn, the runtime lets a task ask for so much only.
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        changes.push(asked(b.write(HEAVY, 1, false, change(b'b'))).await);
        reads.push(asked(b.read(HEAVY, read(b'b'))).await);
        tokio::task::yield_now().await;
    }
    drop(hold);
    for call in changes {
        soon(call).await.unwrap();
    }
    for call in reads {
        soon(call).await.unwrap();
    }
    let order = order.lock().unwrap();
    let last = order.iter().rposition(|name| *name == b'b').unwrap();
    // One of its changes and two of its reads are queued at once; so many of the other's come
    // between.
    assert!(last < 40, "the last of 10 operations was number {last}");
    assert_eq!(order.len(), 91);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_hangs_holds_up_nothing_of_another() {
    let pool = pool(3);
    let (hanging, other) = (FakeStore::default(), FakeStore::default());
    let (a, b) = (join(&pool, &hanging, 2), join(&pool, &other, 2));
    let (hold, calls) = hang(&a, 2).await;
    assert_eq!(pool.threads(), 3, "it has all of them");
    for _ in 0..20 {
        soon(b.read(HEAVY, |_| ())).await.unwrap();
        soon(b.write(HEAVY, 1, true, set(1, "x"))).await.unwrap();
    }
    soon(b.shut_down()).await.unwrap();
    assert!(calls.iter().all(|call| !call.is_finished()));
    drop(hold);
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    soon(a.shut_down()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_in_place_of_others_end_when_those_are_free() {
    let pool = pool(2);
    let store = FakeStore::default();
    let worker = join(&pool, &store, 2);
    let (hold, calls) = hang(&worker, 1).await;
    thread::sleep(STUCK);
    let (second, more) = {
        let (hold, wait, began) = held();
        let read = {
            let worker = Arc::clone(&worker);
            tokio::spawn(async move { worker.read(HEAVY, move |_| wait()).await })
        };
        until(|| began.load(Ordering::SeqCst) == 1).await;
        (hold, read)
    };
    // One of the pool's two, beside the two that are held up.
    soon(worker.read(HEAVY, |_| ())).await.unwrap();
    assert!(pool.threads() > 2);
    drop((hold, second));
    for call in calls.into_iter().chain([more]) {
        soon(call).await.unwrap().unwrap();
    }
    until(|| pool.threads() <= 2).await;
    soon(worker.read(HEAVY, |_| ())).await.unwrap();
    // The writer's, and as many as there may be reads at once.
    until(|| store.open_connections() <= 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_open_when_a_session_has_been_shut_down() {
    let pool = pool(3);
    for round in 0..200 {
        let store = FakeStore::default();
        let worker = join(&pool, &store, 2);
        let calls: Vec<_> = (0..6)
            .map(|at| {
                let worker = Arc::clone(&worker);
                tokio::spawn(async move {
                    let cost = if at % 2 == 0 { HEAVY } else { LIGHT };
                    for _ in 0..4 {
                        let _ = worker.read(cost, |_| ()).await;
                        let _ = worker.write(cost, 1, false, set(1, "x")).await;
                    }
                })
            })
            .collect();
        for _ in 0..round % 10 {
            tokio::task::yield_now().await;
        }
        soon(worker.shut_down()).await.unwrap();
        assert_eq!(store.open_connections(), 0, "round {round}");
        assert!(!store.closed_writer_early(), "round {round}");
        let opened = store.count(Call::OpenReader);
        for call in calls {
            soon(call).await.unwrap();
        }
        assert_eq!(store.count(Call::OpenReader), opened, "round {round}");
    }
}

#[tokio::test]
async fn no_connection_is_open_when_the_store_has_panicked() {
    let (pool, store) = (pool(2), FakeStore::default());
    let worker = join(&pool, &store, 2);
    soon(worker.read(HEAVY, |_| ())).await.unwrap();
    store.panic_at(Call::Commit);
    let answer = soon(worker.write(HEAVY, 1, false, set(1, "x"))).await;
    assert!(matches!(answer, Err(WorkError::Panicked)), "{answer:?}");
    assert!(matches!(soon(worker.shut_down()).await, Err(WorkError::Panicked)));
    assert_eq!((store.open_connections(), store.count(Call::Close)), (0, 0));
    // The threads are as good as before.
    let next = join(&pool, &FakeStore::default(), 2);
    soon(next.write(HEAVY, 1, false, set(1, "x"))).await.unwrap();
}

#[tokio::test]
async fn no_connection_is_open_when_a_session_cannot_be_opened() {
    let (pool, store) = (pool(2), FakeStore::default());
    store.fail(Call::OpenWriter, StoreError::io("scripted"));
    let options = WorkerOptions { strict: false, readers: 2, callers: 1 };
    let opened = Worker::start_in(&pool, store.as_store(), options, Limits::default());
    assert_eq!(failure_kind(&opened.map_err(WorkError::Store).map(drop)), Some(StoreErrorKind::Io));
    assert_eq!(store.open_connections(), 0);
    assert!(store.calls().is_empty());
}

#[tokio::test]
async fn nothing_is_left_of_sessions_and_threads_that_were_dropped() {
    let watch = ThreadWatch::new(1, None);
    let is_watched = Arc::downgrade(&watch);
    let pool = WorkerPool::new(3, watch);
    let stores: Vec<_> = (0..20).map(|_| FakeStore::default()).collect();
    for store in &stores {
        let worker = join(&pool, store, 2);
        soon(worker.read(LIGHT, |_| ())).await.unwrap();
        soon(worker.write(HEAVY, 1, false, set(1, "x"))).await.unwrap();
        // A caller that does not wait for the answer.
        let mut call: Pending<'_, _> = Box::pin(worker.write(HEAVY, 1, false, set(2, "x")));
        let _ = is_pending(&mut call).await;
        let mut call: Pending<'_, _> = Box::pin(worker.read(HEAVY, |_| ()));
        let _ = is_pending(&mut call).await;
    }
    drop(pool);
    until(|| stores.iter().all(|store| store.open_connections() == 0)).await;
    assert!(stores.iter().all(|store| store.row(2).is_some() && !store.closed_writer_early()));
    // The threads hold the watch.
    until(|| is_watched.strong_count() == 0).await;
}

#[tokio::test]
async fn a_stuck_read_closes_its_connection_after_the_session_is_closed() {
    let (pool, store) = (pool(3), FakeStore::default());
    let worker = join(&pool, &store, 1);
    let (hold, wait, began) = held();
    let stuck = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.read(HEAVY, move |_| wait()).await }
    });
    until(|| began.load(Ordering::SeqCst) == 1).await;
    soon(worker.shut_down()).await.unwrap();
    assert_eq!((store.count(Call::Close), store.open_connections()), (1, 1));
    drop(hold);
    soon(stuck).await.unwrap().unwrap();
    until(|| store.open_connections() == 0).await;
}

#[tokio::test]
async fn work_beside_writers_leaves_threads_to_the_sessions() {
    let pool = pool(2 * MAX_BACKGROUND_RUNS);
    let (hold, wait, began) = held();
    for _ in 0..3 * MAX_BACKGROUND_RUNS {
        let wait = wait.clone();
        assert!(pool.run(Box::new(wait)));
    }
    assert!(!pool.run_now(Box::new(|| ())), "others wait");
    until(|| began.load(Ordering::SeqCst) == MAX_BACKGROUND_RUNS).await;
    let store = FakeStore::default();
    let worker = join(&pool, &store, 2);
    soon(worker.write(HEAVY, 1, false, set(1, "x"))).await.unwrap();
    soon(worker.read(HEAVY, |_| ())).await.unwrap();
    assert_eq!(began.load(Ordering::SeqCst), MAX_BACKGROUND_RUNS);
    drop(hold);
    until(|| began.load(Ordering::SeqCst) == 3 * MAX_BACKGROUND_RUNS).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let run = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    until(|| pool.run_now(Box::new(run.clone()))).await;
    until(|| ran.load(Ordering::SeqCst) == 1).await;
}
