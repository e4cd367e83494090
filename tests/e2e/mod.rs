//! The whole server in one process, driven over TCP by an independent client.

mod bad_input;
mod crowded;
mod escapes;
mod exports;
mod hanging;
mod in_flight;
mod listing;
mod mounting;
#[cfg(target_os = "linux")]
mod open_files;
pub mod peer;
mod procedures;
mod quota;
pub mod raw;
mod restart;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use acetate::base::{HostDir, HostDirOptions};
use acetate::delta::Store;
use acetate::delta::sqlite::{CreateOptions, Host, OpenMode, Session};
use acetate::nfs::{HandleCodec, MountProgram, Nfs};
use acetate::overlay::{Overlay, OverlayParts};
use acetate::server::limits::Limits;
use acetate::server::{Listeners, RpcProgram, Server, ServerOptions};
use acetate::vfs::Time;
use acetate::worker::{Worker, WorkerOptions};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::check::assert_consistent;
use crate::support::fixture;
use crate::support::host_tree::HostTree;
use peer::Peer;

/// How long connections of a stopped server may take to let its session go.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server of a session over a base, at a port of its own.
struct Served {
    dir: TempDir,
    before: HostTree,
    limits: Limits,
    running: Option<Running>,
}

struct Running {
    address: SocketAddr,
    worker: Arc<Worker>,
    overlay: Arc<Overlay>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    /// Serves a new session over a base with these objects (see [`fixture`]).
    async fn start(base: &str) -> Self {
        Self::start_with(base, Limits::default()).await
    }

    /// The same within other limits.
    async fn start_with(base: &str, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base_dir = dir.path().join("base");
        std::fs::create_dir(&base_dir).unwrap();
        fixture::build(&base_dir, base);
        let before = HostTree::read(&base_dir);
        let mut served = Self { dir, before, limits, running: None };
        let options = CreateOptions { base_path: Some(base_dir), ..CreateOptions::default() };
        let host = Host::current().unwrap();
        let session = Session::create(&served.session(), &options, &host).unwrap();
        served.run(session).await;
        served
    }

    fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    fn session(&self) -> PathBuf {
        self.dir.path().join("session.db")
    }

    fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().address
    }

    async fn run(&mut self, session: Session) {
        let handles = HandleCodec::new(session.handle_key(), 0);
        let store: Arc<dyn Store> = Arc::new(session);
        let options = WorkerOptions { strict: false, readers: 2, callers: 2 };
        let worker = Arc::new(Worker::start(store.clone(), options).unwrap());
        let overlay = Arc::new(Overlay::new(OverlayParts {
            store,
            worker: worker.clone(),
            base: Arc::new(HostDir::open(&self.base(), HostDirOptions::default()).unwrap()),
            clock: Arc::new(now),
            fsid: 7,
            cookie_key: 7,
            read_only: false,
            copy_up: acetate::overlay::CopyLimits::default(),
            checkpoints: acetate::overlay::AutomaticCheckpoints::default(),
        }));
        let programs: Vec<Arc<dyn RpcProgram>> = vec![
            Arc::new(Nfs::new(overlay.clone(), handles)),
            Arc::new(MountProgram::new(overlay.clone(), handles)),
        ];
        let listeners = Listeners::bind(&[SocketAddr::from(([127, 0, 0, 1], 0))]).await.unwrap();
        let address = listeners.addresses()[0];
        let limits = self.limits.clone();
        let options = ServerOptions { insecure: true, limits, ..ServerOptions::default() };
        let server = Server::new(listeners, programs, options);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        self.running = Some(Running { address, worker, overlay, stop, task });
    }

    /// Stops the server as a signal does; checks what it left behind.
    async fn stop(&mut self) {
        let running = self.running.take().unwrap();
        running.stop.send(()).unwrap();
        running.task.await.unwrap();
        running.worker.shut_down().await.unwrap();
        assert_consistent(&self.session());
        assert_eq!(self.before, HostTree::read(&self.base()), "the base changed");
    }

    /// Stops the server and starts another one, at another port.
    async fn restart(&mut self) {
        self.stop().await;
        self.open_again().await;
    }

    /// Ends the server as a kill does, and starts another one.
    async fn kill(&mut self) {
        let files = ["", "-wal"].map(|suffix| format!("{}{suffix}", self.session().display()));
        let killed = files.clone().map(|file| std::fs::read(file).unwrap());
        self.stop().await;
        for (file, bytes) in files.iter().zip(killed) {
            std::fs::write(file, bytes).unwrap();
        }
        assert_consistent(&self.session());
        self.open_again().await;
    }

    async fn open_again(&mut self) {
        let host = Host::current().unwrap();
        let reopened = async {
            loop {
                match Session::open(&self.session(), OpenMode::Serve, &host) {
                    Ok(session) => break session,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let session = tokio::time::timeout(RELEASE_TIMEOUT, reopened).await.unwrap();
        self.run(session).await;
    }

    /// The superuser's connection.
    async fn connect(&self) -> Peer {
        Peer::connect(self.address(), 0, 0).await
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
