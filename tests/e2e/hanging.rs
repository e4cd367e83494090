//! Two sessions in one server: what holds one of them up costs the other nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::base::{Base, HostDir, HostDirOptions};
use acetate::delta::Store;
use acetate::delta::sqlite::{CreateOptions, Host, Session};
use acetate::nfs::{HandleCodec, MountProgram, Nfs};
use acetate::overlay::{CopyLimits, Overlay, OverlayParts};
use acetate::server::{Listeners, RpcProgram, Server, ServerOptions};
use acetate::worker::{Limits, ThreadWatch, Worker, WorkerOptions, WorkerPool};
use acetate::workspace::layers;
use nfs3_client::nfs3_types::nfs3::nfsstat3;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::now;
use super::peer::{Peer, mode};
use crate::support::hanging_base::HangingBase;

/// A call that is not held up is answered in less.
const AT_ONCE: Duration = Duration::from_millis(400);

/// What takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

const READERS: usize = 2;

/// Callers of the base that hangs: more than there are threads for.
const CALLERS: usize = 30;

/// A server's runtime with two sessions, one over a base that can hang.
struct Two {
    dir: TempDir,
    base: Arc<HangingBase>,
    good: Running,
    bad: Running,
    clients: Runtime,
    runtime: Runtime,
}

struct Running {
    address: SocketAddr,
    worker: Arc<Worker>,
    overlay: Arc<Overlay>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn multi_thread(threads: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().unwrap()
}

impl Two {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["good", "bad"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            for file in 0..CALLERS {
                std::fs::write(dir.path().join(name).join(format!("file-{file}")), "").unwrap();
            }
        }
        let runtime = multi_thread(2 + 2 * (READERS + 1));
        let watch = ThreadWatch::new(2 * (READERS + 1), Some(runtime.handle().clone()));
        let pool = WorkerPool::new(2 * (1 + READERS), watch);
        let base = HangingBase::new(&dir.path().join("bad"));
        let local = HostDir::open(&dir.path().join("good"), HostDirOptions::default()).unwrap();
        let good = Running::start(&dir, "good.db", Arc::new(local), &runtime, &pool);
        let bad = Running::start(&dir, "bad.db", base.clone(), &runtime, &pool);
        Self { dir, base, good, bad, clients: multi_thread(2), runtime }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.clients.block_on(async { tokio::time::timeout(PATIENCE, work).await.unwrap() })
    }

    fn peer(&self, of: &Running) -> Peer {
        self.wait(Peer::connect(of.address, 0, 0))
    }

    /// The root's attributes, and how long they took.
    fn getattr(&self, peer: &mut Peer) -> Duration {
        let (root, began) = (peer.root.clone(), Instant::now());
        self.wait(peer.getattr(&root)).unwrap();
        began.elapsed()
    }

    /// Callers that each ask for another file of the base that hangs.
    fn ask_the_base(&self) -> Vec<JoinHandle<Result<(), nfsstat3>>> {
        let peers: Vec<_> = (0..CALLERS).map(|_| self.peer(&self.bad)).collect();
        self.base.hang(true);
        let ask = |(at, mut peer): (usize, Peer)| {
            self.clients.spawn(async move {
                let root = peer.root.clone();
                peer.lookup(&root, &format!("file-{at}")).await.map(drop)
            })
        };
        let asked = peers.into_iter().enumerate().map(ask).collect();
        let began = Instant::now();
        while self.base.waiting() < READERS + 1 {
            assert!(began.elapsed() < PATIENCE, "{} calls wait", self.base.waiting());
            std::thread::sleep(Duration::from_millis(1));
        }
        asked
    }

    fn stop(self) {
        self.base.hang(false);
        for running in [self.good, self.bad] {
            running.stop.send(()).unwrap();
            self.runtime.block_on(running.task).unwrap();
            self.runtime.block_on(running.worker.shut_down()).unwrap();
        }
    }
}

impl Running {
    fn start(
        dir: &TempDir,
        session: &str,
        base: Arc<dyn Base>,
        runtime: &Runtime,
        pool: &Arc<WorkerPool>,
    ) -> Self {
        let options = CreateOptions::default();
        let path = dir.path().join(session);
        let session = Session::create(&path, &options, &Host::current().unwrap()).unwrap();
        let handles = HandleCodec::new(session.handle_key(), 0);
        let store: Arc<dyn Store> = Arc::new(session);
        let options = WorkerOptions { strict: false, readers: READERS, callers: READERS };
        let worker = Worker::start_in(pool, store.clone(), options, Limits::default()).unwrap();
        let worker = Arc::new(worker);
        let overlay = Arc::new(Overlay::new(OverlayParts {
            store,
            worker: worker.clone(),
            base,
            clock: Arc::new(now),
            fsid: 7,
            cookie_key: 7,
            read_only: false,
            copy_up: CopyLimits::default(),
            checkpoints: acetate::overlay::AutomaticCheckpoints::default(),
        }));
        let programs: Vec<Arc<dyn RpcProgram>> = vec![
            Arc::new(Nfs::new(overlay.clone(), handles)),
            Arc::new(MountProgram::new(overlay.clone(), handles)),
        ];
        let (address, server) = runtime.block_on(async {
            let at = [SocketAddr::from(([127, 0, 0, 1], 0))];
            let listeners = Listeners::bind(&at).await.unwrap();
            let options = ServerOptions { insecure: true, ..ServerOptions::default() };
            (listeners.addresses()[0], Server::new(listeners, programs, options))
        });
        let (stop, stopped) = oneshot::channel();
        let task = runtime.spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, worker, overlay, stop, task }
    }
}

#[test]
fn the_servers_threads_leave_two_whatever_two_bases_hold_up() {
    assert!(layers::network_threads() >= 2 + 2 * (READERS + 1));
}

#[test]
fn a_base_that_hangs_keeps_no_other_session_waiting() {
    let two = Two::start();
    let mut good = two.peer(&two.good);
    let asked = two.ask_the_base();
    for _ in 0..50 {
        let took = two.getattr(&mut good);
        assert!(took < AT_ONCE, "{took:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    let began = Instant::now();
    two.getattr(&mut two.peer(&two.good));
    assert!(began.elapsed() < 3 * AT_ONCE, "a new mount took {:?}", began.elapsed());
    let root = good.root.clone();
    two.wait(good.setattr(&root, mode(0o711))).unwrap();
    two.base.hang(false);
    for answer in asked {
        assert!(matches!(two.wait(answer).unwrap(), Ok(()) | Err(nfsstat3::NFS3ERR_JUKEBOX)));
    }
    two.stop();
}

#[test]
fn a_lock_of_another_program_keeps_no_other_session_waiting() {
    let two = Two::start();
    let (mut good, mut bad) = (two.peer(&two.good), two.peer(&two.bad));
    let root = bad.root.clone();
    two.wait(bad.setattr(&root, mode(0o711))).unwrap();
    let other = rusqlite::Connection::open(two.dir.path().join("bad.db")).unwrap();
    for turn in 0..9 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (root, mut peer) = (root.clone(), two.peer(&two.bad));
        let changed = two.clients.spawn(async move {
            peer.setattr(&root, mode(0o700 + turn)).await.unwrap();
        });
        std::thread::sleep(Duration::from_millis(100));
        let took = two.getattr(&mut good);
        let took_there = two.getattr(&mut bad);
        other.execute_batch("ROLLBACK").unwrap();
        assert!(took < AT_ONCE, "{took:?}");
        assert!(took_there < AT_ONCE, "{took_there:?}: a snapshot needs no lock");
        two.wait(changed).unwrap();
    }
    two.stop();
}

#[test]
fn where_the_writer_is_stuck_in_the_base_changes_are_refused() {
    let two = Two::start();
    let (mut bad, mut other) = (two.peer(&two.bad), two.peer(&two.bad));
    let (root, file) = (bad.root.clone(), two.wait(bad.at("file-0")));
    two.base.hang(true);
    let copying = two.clients.spawn(async move { bad.setattr(&file, mode(0o600)).await });
    let began = Instant::now();
    while !two.bad.overlay.is_writer_stuck() {
        assert!(began.elapsed() < PATIENCE, "it never counts as stuck");
        std::thread::sleep(Duration::from_millis(10));
    }
    let began = Instant::now();
    let refused = two.wait(other.setattr(&root, mode(0o711)));
    assert_eq!(refused, Err(nfsstat3::NFS3ERR_JUKEBOX));
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    let mut good = two.peer(&two.good);
    let root = good.root.clone();
    two.wait(good.setattr(&root, mode(0o711))).unwrap();
    two.base.hang(false);
    two.wait(copying).unwrap().unwrap();
    two.stop();
}
