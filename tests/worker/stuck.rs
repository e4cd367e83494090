//! Threads that are stuck in an operation: others take their place, up to a number.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use acetate::delta::WriteTxn;
use acetate::worker::{
    Cost, Limits, MAX_REPLACED_OF_SESSION, OpResult, STUCK, ThreadWatch, WorkError, Worker,
    WorkerOptions, WorkerPool,
};

use super::fake::{Call, FakeStore};
use super::{LIGHT, asked, soon, until};

const HEAVY: Cost = Cost::Offload;

fn start(store: &FakeStore, readers: usize, pool: &Arc<WorkerPool>) -> Arc<Worker> {
    let options = WorkerOptions { strict: false, readers, callers: 1 };
    let worker = Worker::start_in(pool, store.as_store(), options, Limits::default()).unwrap();
    Arc::new(worker)
}

/// Something that holds an operation up until it is dropped.
fn hold() -> (Sender<()>, Arc<std::sync::Mutex<Receiver<()>>>) {
    let (hold, held) = mpsc::channel();
    (hold, Arc::new(std::sync::Mutex::new(held)))
}

/// Asks for reads, which a thread each is stuck in until `held` is let go.
async fn get_stuck(
    worker: &Arc<Worker>,
    count: usize,
    held: &Arc<std::sync::Mutex<Receiver<()>>>,
) -> Vec<tokio::task::JoinHandle<Result<(), WorkError>>> {
    let mut stuck = Vec::new();
    for _ in 0..count {
        let (worker, held) = (worker.clone(), held.clone());
        stuck.push(tokio::spawn(async move {
            let wait = move |_: &dyn acetate::delta::ReadTxn| {
                while let Err(mpsc::RecvTimeoutError::Timeout) =
                    held.lock().unwrap().recv_timeout(Duration::from_millis(1))
                {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            worker.read(HEAVY, wait).await
        }));
    }
    stuck
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_stuck_is_replaced_and_ends() {
    let (store, pool) = (FakeStore::default(), WorkerPool::new(4, ThreadWatch::new(1, None)));
    let worker = start(&store, 1, &pool);
    let (release, held) = hold();
    let stuck = get_stuck(&worker, 2, &held).await;
    thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    soon(worker.read(HEAVY, |_| ())).await.unwrap();
    assert!(began.elapsed() < 3 * STUCK, "{:?}", began.elapsed());
    drop(release);
    for read in stuck {
        soon(read).await.unwrap().unwrap();
    }
    // Of three, as many stay as reads run at once where none is stuck.
    until(|| store.count(Call::CloseReader) == 1).await;
    soon(worker.shut_down()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_no_more_may_be_replaced_reads_are_refused_at_once_and_the_session_is_closed() {
    let (store, pool) = (FakeStore::default(), WorkerPool::new(4, ThreadWatch::new(1, None)));
    let readers = MAX_REPLACED_OF_SESSION;
    let worker = start(&store, readers, &pool);
    let (release, held) = hold();
    let stuck = get_stuck(&worker, readers + MAX_REPLACED_OF_SESSION, &held).await;
    // All of them are in the queue before the next one.
    thread::sleep(Duration::from_millis(100));
    let waiting = asked(worker.read(HEAVY, |_| ())).await;
    let refused = soon(waiting).await;
    assert!(matches!(refused, Err(WorkError::Stuck)), "{refused:?}");
    let began = Instant::now();
    let refused = soon(worker.read(HEAVY, |_| ())).await;
    assert!(matches!(refused, Err(WorkError::Stuck)), "{refused:?}");
    assert!(began.elapsed() < STUCK / 4, "{:?}", began.elapsed());
    // Another session gets threads all the same.
    let other = start(&FakeStore::default(), 1, &pool);
    soon(other.read(HEAVY, |_| ())).await.unwrap();
    let change = |_: &mut dyn WriteTxn| OpResult { value: (), commit: true, after_commit: None };
    soon(worker.write(HEAVY, 1, false, change)).await.unwrap();
    soon(worker.shut_down()).await.unwrap();
    assert_eq!(store.calls().last(), Some(&Call::Close));
    drop(release);
    for read in stuck {
        soon(read).await.unwrap().unwrap();
    }
}

#[test]
fn light_work_is_counted_for_all_sessions_together() {
    let (store, pool) = (FakeStore::default(), WorkerPool::new(4, ThreadWatch::new(1, None)));
    let (one, other) = (start(&store, 1, &pool), start(&store, 1, &pool));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reads_here = |worker: &Worker| {
        let at = runtime().block_on(worker.read(LIGHT, |_| thread::current().id()));
        at.unwrap() == thread::current().id()
    };
    for worker in [&one, &other] {
        // The first one that misses its connection has it opened.
        while !reads_here(worker) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let ((entered, inside), (release, held)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = move |_: &dyn acetate::delta::ReadTxn| {
                entered.send(()).unwrap();
                let _released = held.recv_timeout(Duration::from_secs(30));
            };
            runtime().block_on(one.read(LIGHT, wait)).unwrap();
        });
        inside.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(!reads_here(&other), "one is under way");
        drop(release);
    });
    assert!(reads_here(&other));
}
