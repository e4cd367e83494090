//! What runs on its caller's thread, and what does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use acetate::delta::{StoreError, StoreErrorKind, WriteTxn};
use acetate::worker::{
    Cost, INLINE_WRITE_BYTES, Limits, OpResult, QUICK_SYNC, QUICK_SYNC_BYTES, WorkError, Worker,
    WorkerOptions,
};

use super::fake::{Call, FakeStore};
use super::{LIGHT, Pending, asked, failure_kind, set, set_and_regret, soon, until, whereabouts};
use tokio::runtime::Handle;

const HEAVY: Cost = Cost::Offload;

fn start(store: &FakeStore) -> Worker {
    start_with(store, WorkerOptions { strict: false, readers: 1, callers: 1 }, 3600)
}

fn start_with(store: &FakeStore, options: WorkerOptions, sync_secs: u64) -> Worker {
    let sync_interval = Duration::from_secs(sync_secs);
    let limits = Limits { sync_interval, ..Limits::default() };
    Worker::start_with(store.as_store(), options, limits).unwrap()
}

async fn writes_here(worker: &Worker) -> bool {
    let answer = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
    answer.value == thread::current().id()
}

async fn reads_here(worker: &Worker) -> bool {
    let at = soon(worker.read(LIGHT, |_| thread::current().id())).await.unwrap();
    at == thread::current().id()
}

#[tokio::test]
async fn a_light_change_is_committed_on_its_callers_thread() {
    let store = FakeStore::default();
    let worker = start(&store);
    assert!(writes_here(&worker).await);
    let answer = soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.unwrap();
    assert_eq!((answer.value, answer.durable), (1, false));
    assert_eq!(store.row(1).unwrap(), b"x");
    soon(worker.write(LIGHT, 1, false, set_and_regret(2))).await.unwrap();
    assert_eq!(store.row(2), None);
    assert_eq!((store.count(Call::Commit), store.count(Call::Abort)), (2, 1));
}

#[tokio::test]
async fn what_takes_long_goes_to_the_threads() {
    let here = thread::current().id();
    let store = FakeStore::default();
    let worker = start(&store);
    for (cost, bytes) in [(HEAVY, 1), (LIGHT, INLINE_WRITE_BYTES + 1)] {
        let answer = soon(worker.write(cost, bytes, false, whereabouts)).await.unwrap();
        assert_ne!(answer.value, here, "{cost:?} {bytes}");
    }
    let at = soon(worker.read(HEAVY, |_| thread::current().id())).await.unwrap();
    assert_ne!(at, here);
    until_reads_here(&worker).await;
}

async fn syncs_here(worker: &Worker) -> bool {
    let answer = soon(worker.write(LIGHT, 1, true, whereabouts)).await.unwrap();
    assert!(answer.durable);
    answer.value == thread::current().id()
}

#[tokio::test]
async fn no_callers_thread_makes_the_first_sync() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.leave_unsynced(1);
    let hold = store.hold(Call::Sync);
    let syncing = asked(worker.sync()).await;
    // This thread is the caller's: it gets here.
    soon(hold.reached(1)).await;
    drop(hold);
    soon(syncing).await.unwrap();
    let worker = start(&FakeStore::default());
    assert!(!syncs_here(&worker).await, "a durable change");
}

#[tokio::test]
async fn while_syncs_are_quick_callers_make_them() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.leave_unsynced(0);
    until_syncs_here(&worker).await;
    store.leave_unsynced(1);
    let (commits, syncs) = (store.count(Call::Commit), store.count(Call::Sync));
    soon(worker.sync()).await.unwrap();
    assert_eq!((store.count(Call::Commit), store.count(Call::Sync)), (commits + 1, syncs));
    assert!(store.calls().ends_with(&[Call::Begin { durable: true }, Call::Commit]));
    store.fail(Call::Commit, StoreError::io("scripted"));
    assert_eq!(failure_kind(&soon(worker.sync()).await), Some(StoreErrorKind::Io));
    let refused = soon(worker.write(LIGHT, 1, false, whereabouts)).await;
    assert!(matches!(refused, Err(WorkError::ReadOnly)), "a failed sync ends writing");
}

#[tokio::test]
async fn after_a_slow_sync_and_with_much_to_sync_callers_make_none() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.leave_unsynced(0);
    until_syncs_here(&worker).await;
    store.leave_unsynced(QUICK_SYNC_BYTES + 1);
    assert!(!syncs_here(&worker).await, "much to sync");
    store.leave_unsynced(0);
    until_syncs_here(&worker).await;
    store.leave_unsynced(QUICK_SYNC_BYTES + 1);
    let hold = store.hold(Call::Sync);
    let slow = asked(worker.sync()).await;
    soon(hold.reached(1)).await;
    thread::sleep(2 * QUICK_SYNC);
    drop(hold);
    soon(slow).await.unwrap();
    store.leave_unsynced(0);
    // One that has nothing to do says nothing about the disk.
    soon(worker.sync()).await.unwrap();
    assert!(!syncs_here(&worker).await, "the last one was slow");
}

async fn until_syncs_here(worker: &Worker) {
    let begun = async { while !syncs_here(worker).await {} };
    soon(begun).await;
}

#[tokio::test]
async fn where_nothing_is_to_be_synced_a_sync_is_answered_at_once() {
    let store = FakeStore::default();
    let worker = start(&store);
    assert!(writes_here(&worker).await);
    store.leave_unsynced(0);
    let synced = store.count(Call::Sync);
    soon(worker.sync()).await.unwrap();
    assert_eq!(store.count(Call::Sync), synced);
}

#[tokio::test]
async fn a_strict_worker_syncs_each_change_wherever_it_runs() {
    let store = FakeStore::default();
    let worker = start_with(&store, WorkerOptions { strict: true, readers: 1, callers: 1 }, 3600);
    store.leave_unsynced(0);
    let mut places = std::collections::HashSet::new();
    while places.len() < 2 {
        let answer = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
        assert!(answer.durable);
        places.insert(answer.value == thread::current().id());
    }
    assert_eq!(store.count(Call::Begin { durable: true }), store.count(Call::Commit));
    assert!(!store.calls().contains(&Call::Begin { durable: false }));
}

#[tokio::test]
async fn what_would_wait_for_a_lock_goes_to_the_threads() {
    let here = thread::current().id();
    let store = FakeStore::default();
    let worker = start(&store);
    assert!(writes_here(&worker).await);
    store.lock();
    let answer = soon(worker.write(LIGHT, 1, false, whereabouts)).await.unwrap();
    assert_ne!(answer.value, here, "a change");
    until_reads_here(&worker).await;
    store.fail(Call::Read, StoreError::busy("scripted"));
    let at = soon(worker.read(LIGHT, |_| thread::current().id())).await.unwrap();
    assert_ne!(at, here, "a read");
    assert!(reads_here(&worker).await, "its connection is as good as before");
}

#[tokio::test]
async fn no_callers_thread_opens_a_connection() {
    let store = FakeStore::default();
    let worker = start(&store);
    assert!(!reads_here(&worker).await, "there is none yet");
    until_reads_here(&worker).await;
    let opened = store.count(Call::OpenReader);
    store.fail(Call::Read, StoreError::io("scripted"));
    let here = thread::current().id();
    let at = soon(worker.read(LIGHT, |_| thread::current().id())).await.unwrap();
    assert_ne!(at, here, "the next one");
    until(|| store.count(Call::OpenReader) > opened).await;
    until_reads_here(&worker).await;
}

/// Returns once a connection is lent to callers: it is opened after a read that misses it.
async fn until_reads_here(worker: &Worker) {
    let begun = async {
        while !reads_here(worker).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(begun).await;
}

#[tokio::test]
async fn changes_that_come_at_once_share_commits_on_the_thread() {
    let store = FakeStore::default();
    let worker = start(&store);
    let hold = store.hold(Call::Commit);
    let first = asked(worker.write(HEAVY, 1, false, set(0, "first"))).await;
    soon(hold.reached(1)).await;
    // Nobody waits on its own thread for the writer.
    let a = asked(worker.write(LIGHT, 1, false, set(1, "a"))).await;
    let b = asked(worker.write(LIGHT, 1, false, whereabouts)).await;
    drop(hold);
    soon(first).await.unwrap();
    soon(a).await.unwrap();
    assert_ne!(soon(b).await.unwrap().value, thread::current().id());
    assert_eq!(store.count(Call::Commit), 2);
}

#[test]
fn readers_beyond_those_that_are_lent_go_to_the_threads() {
    let store = FakeStore::default();
    let worker = start(&store);
    let (entered, inside) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(until_reads_here(&worker));
    thread::scope(|scope| {
        scope.spawn(|| {
            let here = thread::current().id();
            let at = runtime().block_on(worker.read(LIGHT, move |_| {
                entered.send(()).unwrap();
                left.recv_timeout(Duration::from_secs(30)).unwrap();
                thread::current().id()
            }));
            assert_eq!(at.unwrap(), here);
        });
        inside.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(!runtime().block_on(reads_here(&worker)));
        leave.send(()).unwrap();
    });
    assert!(runtime().block_on(reads_here(&worker)));
}

#[tokio::test]
async fn the_thread_does_what_a_callers_commit_leaves_to_do() {
    let store = FakeStore::default();
    let worker = start_with(&store, WorkerOptions { strict: false, readers: 1, callers: 1 }, 1);
    assert!(writes_here(&worker).await);
    until(|| store.count(Call::Sync) > 0).await;
    store.want_maintenance_in(Duration::ZERO);
    assert_eq!(store.count(Call::Maintenance), 0);
    assert!(writes_here(&worker).await);
    until(|| store.count(Call::Maintenance) == 1).await;
    // However often a caller syncs, the thread looks after what is committed later.
    for _ in 0..3 {
        soon(worker.sync()).await.unwrap();
        assert!(writes_here(&worker).await);
    }
    let before = store.count(Call::Sync);
    until(|| store.count(Call::Sync) > before).await;
}

#[tokio::test]
async fn what_is_due_later_is_done_without_another_change() {
    let store = FakeStore::default();
    // The timer does not come.
    let worker = start(&store);
    store.want_maintenance_in(Duration::from_millis(50));
    assert!(writes_here(&worker).await);
    soon(worker.sync()).await.unwrap();
    until(|| store.count(Call::Maintenance) == 1).await;
}

#[tokio::test]
async fn a_panic_of_the_store_under_a_caller_ends_the_session() {
    let (store, worker) = loop {
        let store = FakeStore::default();
        let worker = Arc::new(start(&store));
        store.panic_at(Call::Commit);
        let writer = Arc::clone(&worker);
        let call = async move { writer.write(LIGHT, 1, false, set(1, "x")).await };
        match tokio::spawn(call).await {
            Err(ended) => {
                assert!(ended.is_panic());
                break (store, worker);
            }
            // The writer's thread, which had just begun, took it: that is another test's.
            Ok(answer) => assert!(matches!(answer, Err(WorkError::Panicked)), "{answer:?}"),
        }
    };
    let next = soon(worker.write(LIGHT, 1, false, set(2, "x"))).await;
    assert!(matches!(next, Err(WorkError::Panicked | WorkError::ShuttingDown)), "{next:?}");
    assert!(matches!(soon(worker.shut_down()).await, Err(WorkError::Panicked)));
    assert_eq!(store.count(Call::Close), 0, "not a clean end");
}

#[tokio::test]
async fn an_io_error_of_a_callers_commit_ends_writing() {
    let store = FakeStore::default();
    let worker = start(&store);
    store.fail(Call::Commit, StoreError::io("scripted"));
    let answer = soon(worker.write(LIGHT, 1, false, set(1, "x"))).await;
    assert_eq!(failure_kind(&answer), Some(StoreErrorKind::Io));
    let next = soon(worker.write(LIGHT, 1, false, set(2, "x"))).await;
    assert!(matches!(next, Err(WorkError::ReadOnly)));
    until_reads_here(&worker).await;
}

/// The writer's thread may begin only after the failure.
#[tokio::test]
async fn a_session_that_lost_its_writer_at_once_does_not_end_cleanly() {
    for _ in 0..500 {
        let store = FakeStore::default();
        store.fail(Call::Commit, StoreError::io("scripted"));
        let worker = start(&store);
        assert!(soon(worker.write(LIGHT, 1, false, set(1, "x"))).await.is_err());
        let end = soon(worker.shut_down()).await;
        assert!(matches!(end, Err(WorkError::ReadOnly)), "{end:?}");
        assert_eq!(store.count(Call::Close), 0);
    }
}

#[tokio::test]
async fn lent_connections_are_closed_before_the_session() {
    let store = FakeStore::default();
    let worker = start(&store);
    until_reads_here(&worker).await;
    soon(worker.shut_down()).await.unwrap();
    let calls = store.calls();
    let closed = calls.iter().filter(|&&call| call == Call::CloseReader).count();
    assert_eq!(closed, 1, "the one that the thread opened for itself was lent");
    assert_eq!(calls.last(), Some(&Call::Close));
    let late = soon(worker.read(LIGHT, |_| ())).await;
    assert!(matches!(late, Err(WorkError::ShuttingDown)));
}

/// Tells when it is being dropped, and takes its time.
struct Slow(mpsc::Sender<()>, Arc<AtomicBool>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        thread::sleep(Duration::from_millis(100));
        self.1.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_does_not_run_is_gone_before_the_next_change() {
    let store = FakeStore::default();
    let worker = Arc::new(start(&store));
    store.fail(Call::Commit, StoreError::full("scripted"));
    let (dropping, begun) = mpsc::channel();
    let dropped = Arc::new(AtomicBool::new(false));
    let mut hook = Some(Slow(dropping, dropped.clone()));
    let failing = tokio::spawn({
        let worker = worker.clone();
        async move {
            let change = move |_: &mut dyn WriteTxn| {
                let slow = hook.take();
                let hook: Box<dyn FnOnce() + Send> = Box::new(move || drop(slow));
                OpResult { value: (), commit: true, after_commit: Some(hook) }
            };
            worker.write(LIGHT, 1, false, change).await.map(|_| ())
        }
    });
    tokio::task::block_in_place(|| begun.recv().unwrap());
    let look = move |_: &mut dyn WriteTxn| {
        let value = dropped.load(Ordering::SeqCst);
        OpResult { value, commit: true, after_commit: None }
    };
    assert!(soon(worker.write(HEAVY, 1, false, look)).await.unwrap().value);
    assert!(soon(failing).await.unwrap().is_err());
}

/// A call that goes on where it is woken, as those of the server do.
struct Inline {
    call: Mutex<Option<Pending<'static, ()>>>,
    runtime: Handle,
}

impl Inline {
    fn start(call: impl Future<Output = ()> + Send + 'static) {
        let call = Mutex::new(Some(Box::pin(call) as Pending<'static, ()>));
        Arc::new(Self { call, runtime: Handle::current() }).poll();
    }

    fn poll(self: Arc<Self>) {
        let mut call = self.call.lock().unwrap();
        let waker = Waker::from(Arc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        if call.as_mut().is_some_and(|call| call.as_mut().poll(&mut cx).is_ready()) {
            *call = None;
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        if Handle::try_current().is_err() && self.call.try_lock().is_ok() {
            self.poll();
        } else {
            let runtime = self.runtime.clone();
            runtime.spawn(async move { self.poll() });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_goes_on_on_a_thread_of_the_worker_asks_for_nothing_there() {
    let store = FakeStore::default();
    let worker = Arc::new(start(&store));
    // Or all of it goes through the queues, and nothing is seen.
    until_reads_here(&worker).await;
    assert!(writes_here(&worker).await);
    let (places, at) = mpsc::channel();
    Inline::start(async move {
        let here = || thread::current().id();
        // It goes on there if it waited already when it was answered.
        let (mut after_change, mut after_read) = (0, 0);
        while after_change < 20 || after_read < 20 {
            let answered = worker.write(HEAVY, 1, false, whereabouts).await.unwrap().value;
            if answered == here() {
                let next = worker.read(LIGHT, move |_| here()).await.unwrap();
                places.send(("a read after a change", answered, next)).unwrap();
                after_change += 1;
            }
            let answered = worker.read(HEAVY, move |_| here()).await.unwrap();
            if answered == here() {
                let next = worker.write(LIGHT, 1, false, whereabouts).await.unwrap().value;
                places.send(("a change after a read", answered, next)).unwrap();
                after_read += 1;
            }
        }
    });
    let next = || at.recv_timeout(Duration::from_secs(30));
    while let Ok((what, answered, next)) = next() {
        assert_ne!(answered, next, "{what}");
    }
    assert_eq!(next(), Err(mpsc::RecvTimeoutError::Disconnected));
}
