//! Several exports of one server: one tree of several mounts, and who gets where.

mod awaited;
mod databases;
mod expiry;
mod guard;
mod guard_restore;
#[cfg(target_os = "linux")]
mod locks;
mod on_demand;
mod reload;
#[cfg(target_os = "linux")]
mod resting;
mod scopes;
mod shares;
mod slow_checks;
mod templates;
mod tree;
mod who;

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::config::{self, Missing};
use acetate::inspect::log::{AuditLog, LogOptions};
use acetate::inspect::opened::open_session;
use acetate::server::limits::Limits;
use acetate::server::{Listeners, Server, ServerOptions};
use acetate::workspace::exports::closing::CopyProgress;
use acetate::workspace::exports::{DatabaseSettings, ServedExports};
use acetate::workspace::layers::SessionLayers;
use acetate::workspace::running::PendingAtEnd;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::peer::Peer;
use crate::support::check::assert_consistent;
use crate::support::fixture;
use crate::support::host_tree::HostTree;
use crate::support::validators::command;

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server of an exports file, at a port of its own.
struct Site {
    dir: TempDir,
    before: HostTree,
    runtime: Runtime,
    limits: Limits,
    /// Whether exports that cannot be opened are skipped, as `serve --config` does.
    is_lenient: bool,
    running: Option<Running>,
}

struct Running {
    served: ServedExports,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Closes all sessions, and finishes their copies.
fn close_all(served: &mut ServedExports) {
    let silent: CopyProgress = Arc::new(|_, _| {});
    served.end(PendingAtEnd::Finish, &silent).unwrap();
}

impl Site {
    /// Serves these exports over a folder that has `base`, with these objects (see [`fixture`]).
    fn start(base: &str, exports: &str) -> Self {
        Self::start_with(base, exports, Limits::default())
    }

    /// The same within limits.
    fn start_with(base: &str, exports: &str, limits: Limits) -> Self {
        Self::start_as(base, exports, limits, false)
    }

    /// As [`Self::start`], without the exports that cannot be opened.
    fn start_lenient(base: &str, exports: &str) -> Self {
        Self::start_as(base, exports, Limits::default(), true)
    }

    fn start_as(base: &str, exports: &str, limits: Limits, is_lenient: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base_dir = dir.path().join("base");
        fs::create_dir(&base_dir).unwrap();
        fixture::build(&base_dir, base);
        let before = HostTree::read(&base_dir);
        let runtime = Runtime::new().unwrap();
        let mut site = Self { dir, before, runtime, limits, is_lenient, running: None };
        site.say(exports);
        site.run();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the exports file.
    fn say(&self, exports: &str) {
        fs::write(self.path("exports.toml"), exports).unwrap();
    }

    fn run(&mut self) {
        let file = self.path("exports.toml");
        let mut served =
            ServedExports::new(&file, false, self.runtime.handle().clone(), Some(command()));
        if self.is_lenient {
            served = served.lenient();
        }
        let (local, address) = (Some(self.path("local")), "here".to_owned());
        served = served.with_databases(DatabaseSettings { local, address });
        let none =
            served.load(&config::read(&file, Missing::Make).unwrap(), &BTreeSet::new()).unwrap();
        served.close(none);
        let programs = served.programs();
        let (address, server) = self.runtime.block_on(async {
            let at = [SocketAddr::from(([127, 0, 0, 1], 0))];
            let listeners = Listeners::bind(&at).await.unwrap();
            let address = listeners.addresses()[0];
            let limits = self.limits.clone();
            let options = ServerOptions { insecure: true, limits, ..ServerOptions::default() };
            (address, Server::new(listeners, programs, options))
        });
        served.know_peers(server.peers());
        let (stop, stopped) = oneshot::channel();
        let task = self.runtime.spawn(server.run(async {
            let _ = stopped.await;
        }));
        self.running = Some(Running { served, address, stop, task });
    }

    /// Reads the exports file anew.
    fn reload(&mut self) -> Result<(), String> {
        let file = self.path("exports.toml");
        let config = config::read(&file, Missing::Make).map_err(|error| error.to_string())?;
        let served = &mut self.running.as_mut().unwrap().served;
        let gone = served.load(&config, &BTreeSet::new()).map_err(|error| error.to_string())?;
        served.close(gone);
        Ok(())
    }

    /// Stops, and checks what is left behind.
    fn stop(&mut self) {
        let Running { mut served, stop, task, .. } = self.running.take().unwrap();
        stop.send(()).unwrap();
        self.runtime.block_on(task).unwrap();
        close_all(&mut served);
        for entry in fs::read_dir(self.dir.path()).unwrap().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "db") {
                assert_consistent(&entry.path());
            }
        }
        assert_eq!(self.before, HostTree::read(&self.path("base")), "the base changed");
    }

    fn mount(&self, path: &str, uid: u32, gid: u32) -> Option<Peer> {
        let address = self.running.as_ref().unwrap().address;
        self.wait(Peer::mount(address, path, uid, gid))
    }

    /// The superuser's mount of an export.
    fn peer(&self, path: &str) -> Peer {
        self.mount(path, 0, 0).unwrap_or_else(|| panic!("{path} does not mount"))
    }

    /// The names of the sessions that are open, in order.
    fn open_sessions(&self) -> Vec<String> {
        let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
        let sessions = self.running.as_ref().unwrap().served.sessions();
        let mut names: Vec<_> = sessions.iter().map(|layers| name(&layers.session)).collect();
        names.sort();
        names
    }

    /// An open session.
    fn layers(&self, session: &str) -> Arc<SessionLayers> {
        let sessions = self.running.as_ref().unwrap().served.sessions();
        sessions.into_iter().find(|layers| layers.session.ends_with(session)).unwrap()
    }

    /// Waits until no session is open.
    fn wait_until_idle(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.open_sessions().is_empty() {
            assert!(Instant::now() < deadline, "still open: {:?}", self.open_sessions());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let work = async { tokio::time::timeout(PATIENCE, work).await };
        self.runtime.block_on(work).expect("it hangs")
    }

    /// What the audit log of a session says: procedure, path and export of each change.
    fn log(&self, session: &str) -> Vec<String> {
        log(&self.path(session))
    }
}

fn log(session: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut log = AuditLog::open(&open_session(session).unwrap(), LogOptions::default()).unwrap();
    log.read(&mut |_, row| {
        let row = row.unwrap();
        let export = row.export.as_deref().unwrap_or("-");
        let path = row.path.display();
        lines.push(format!("{} {path} {export}", row.procedure.as_str()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    lines
}
