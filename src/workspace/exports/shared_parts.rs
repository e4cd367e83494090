//! What all exports of a server share.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::awaited::AwaitedSessions;
use super::base_probes::BaseProbes;
use super::closing::CopyProgress;
use super::databases::DatabaseSessions;
use super::expiry::Expiry;
use super::idle::OpenBounds;
use super::listed::ListedExport;
use super::on_demand::ExportSource;
use super::open_sessions::{OpenSessions, SessionLease};
use crate::config::{TemplateConfig, added_dir, real_path};
use crate::delta::PendingCopies;
use crate::delta::sqlite::{InstanceRegistry, SessionKeys, session_files};
use crate::export::{ExportEntry, Exports};
use crate::server::Peers;
use crate::validation::GuardResources;
use crate::worker::WorkerPool;
use crate::workspace::accounts::Accounts;
use crate::workspace::error::{Error, Result};
use crate::workspace::layers::{ListingMemory, SessionLayers};
use crate::workspace::memory::MemoryDir;
use crate::workspace::running::{PendingAtEnd, RunningSession};

/// Exports that are opened at once, each on a thread of its own.
const MAX_OPENING: usize = 8;

/// Openings over bases that hang, in addition.
const MAX_STUCK: usize = 32;

/// Learns of the sessions that are opened and closed while a server runs.
pub trait SessionObserver: Send + Sync {
    /// The session is open.
    fn opened(&self, layers: &Arc<SessionLayers>);

    /// Whether anything but calls of clients uses the session now: then it is not closed.
    fn is_in_use(&self, session: &Path) -> bool;

    /// The session is to be closed; returns once nothing but calls of clients uses it.
    fn closing(&self, session: &Path) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// What no base may show.
#[derive(Default)]
struct HiddenFiles {
    /// The exports file and what is beside it, and directories of sessions.
    files: BTreeSet<PathBuf>,
    /// The sessions that exports of the file have or had, each with the files beside it.
    sessions: BTreeSet<PathBuf>,
}

/// What all exports of a server share.
pub(in crate::workspace) struct SharedParts {
    pub(super) strict: bool,
    pub(super) runtime: Handle,
    pub(super) pool: Arc<WorkerPool>,
    pub(super) exports: Exports,
    pub(in crate::workspace) sessions: OpenSessions,
    /// Limits on large listings that all sessions share.
    pub(super) listings: Arc<ListingMemory>,
    /// Resources that the guards of all exports share.
    pub(super) resources: Arc<GuardResources>,
    /// Permits for exports that are being opened.
    pub(super) turns: Arc<Semaphore>,
    /// Permits for openings that are stuck.
    pub(super) stuck_turns: Semaphore,
    /// How many sessions may be open, and how long.
    pub(super) bounds: RwLock<OpenBounds>,
    /// The sources of the exports in the table. They refer to this, until the server ends.
    sources: RwLock<Vec<Arc<ExportSource>>>,
    /// The usage of these exports.
    pub(super) accounts: Accounts,
    /// Locked for writing while the exports file is loaded, for reading while an export is made: so
    /// no load misses one.
    pub(super) loading: RwLock<()>,
    /// The templates of the table.
    templates: RwLock<Vec<Arc<TemplateConfig>>>,
    /// The instances of templates that were ever made; `None` without templates.
    registry: RwLock<Option<InstanceRegistry>>,
    /// The directory `exports.d`.
    added_dir: PathBuf,
    /// The exports that cannot be served, for lists of exports.
    pub(super) failed: RwLock<Vec<ListedExport>>,
    /// Asks directories whether they answer.
    pub(super) probes: BaseProbes,
    /// The sessions in databases.
    pub(super) databases: DatabaseSessions,
    /// Finds sessions whose filesystem was not mounted.
    pub(super) awaited: AwaitedSessions,
    /// Removes the instances that expire.
    pub(in crate::workspace) expiry: Expiry,
    /// The connections of the server, once it is known.
    peers: RwLock<Option<Arc<Peers>>>,
    /// What no base may show.
    hidden: RwLock<HiddenFiles>,
    memory: Mutex<Option<MemoryDir>>,
    observer: RwLock<Option<Arc<dyn SessionObserver>>>,
}

impl SharedParts {
    pub(super) fn new(
        strict: bool,
        runtime: Handle,
        pool: Arc<WorkerPool>,
        resources: Arc<GuardResources>,
        accounts: Accounts,
        file: &Path,
    ) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let databases = DatabaseSessions::new(runtime.clone());
        Self {
            strict,
            runtime,
            pool,
            exports: Exports::default(),
            sessions: OpenSessions::default(),
            listings: Arc::default(),
            resources,
            turns: Arc::new(Semaphore::new(MAX_OPENING)),
            stuck_turns: Semaphore::new(MAX_STUCK),
            bounds: RwLock::default(),
            sources: RwLock::default(),
            accounts,
            loading: RwLock::default(),
            templates: RwLock::default(),
            registry: RwLock::default(),
            added_dir: added_dir(&file),
            failed: RwLock::default(),
            probes: BaseProbes::default(),
            databases,
            awaited: AwaitedSessions::default(),
            expiry: Expiry::default(),
            peers: RwLock::default(),
            hidden: RwLock::default(),
            memory: Mutex::default(),
            observer: RwLock::default(),
        }
    }

    /// Informs `observer` of all sessions from now on, first of those that are open.
    pub(super) fn observe(&self, observer: Arc<dyn SessionObserver>) {
        let mut place = self.observer.write();
        self.sessions.all().iter().for_each(|layers| observer.opened(layers));
        *place = Some(observer);
    }

    /// The sources of the exports in the table.
    pub(in crate::workspace) fn sources(&self) -> Vec<Arc<ExportSource>> {
        self.sources.read().clone()
    }

    /// Replaces the sources; returns those that were there.
    pub(super) fn replace_sources(
        &self,
        sources: Vec<Arc<ExportSource>>,
    ) -> Vec<Arc<ExportSource>> {
        let mut place = self.sources.write();
        let before = std::mem::replace(&mut *place, sources);
        self.share(&place);
        before
    }

    /// Adds a source.
    pub(super) fn add(&self, source: Arc<ExportSource>) {
        let mut sources = self.sources.write();
        self.accounts.add(source.account());
        sources.push(source);
    }

    /// Removes a source, if it is there.
    pub(super) fn remove(&self, source: &ExportSource) {
        let mut sources = self.sources.write();
        sources.retain(|known| !std::ptr::eq(Arc::as_ptr(known), source));
        self.share(&sources);
    }

    fn share(&self, sources: &[Arc<ExportSource>]) {
        self.accounts.replace(sources.iter().map(|source| source.account()).collect());
    }

    /// The templates of the table from now on.
    pub(super) fn keep_templates(&self, templates: Vec<Arc<TemplateConfig>>) {
        *self.templates.write() = templates;
    }

    /// The templates of the table.
    pub(super) fn templates(&self) -> Vec<Arc<TemplateConfig>> {
        self.templates.read().clone()
    }

    /// The templates of the table, if these are the same, of the same files.
    pub(super) fn templates_if_same(
        &self,
        others: &[TemplateConfig],
    ) -> Option<Vec<Arc<TemplateConfig>>> {
        let known = self.templates.read();
        let is_same = |(known, other): (&Arc<TemplateConfig>, &TemplateConfig)| {
            known.is_same(other) && known.export.file == other.export.file
        };
        let are_same = known.len() == others.len() && known.iter().zip(others).all(is_same);
        are_same.then(|| known.clone())
    }

    /// Whether a template is of the table, and not of an earlier one.
    pub(super) fn has_template(&self, template: &Arc<TemplateConfig>) -> bool {
        self.templates.read().iter().any(|known| Arc::ptr_eq(known, template))
    }

    /// Uses this registry from now on.
    pub(super) fn keep_registry(&self, registry: Option<InstanceRegistry>) {
        *self.registry.write() = registry;
    }

    /// Runs `read` on the registry; `None` if there is none.
    pub(super) fn with_registry<T>(&self, read: impl FnOnce(&InstanceRegistry) -> T) -> Option<T> {
        self.registry.read().as_ref().map(read)
    }

    /// Records an instance, with the keys of its mounts' sessions.
    pub(super) fn record_instance(&self, path: &str, keys: &[SessionKeys]) -> Result<()> {
        let recorded = self.with_registry(|registry| registry.record(path, keys));
        recorded.unwrap_or(Ok(())).map_err(Error::Registry)
    }

    /// Removes an instance from the registry.
    pub(super) fn forget_instance(&self, path: &str) -> Result<()> {
        let removed = self.with_registry(|registry| registry.remove(path));
        removed.unwrap_or(Ok(())).map_err(Error::Registry)
    }

    /// The server has these connections.
    pub(super) fn know_peers(&self, peers: Arc<Peers>) {
        *self.peers.write() = Some(peers);
    }

    /// Whether a client that has used or mounted an export is connected, or may be.
    pub(super) fn has_connected_client(&self, entry: &ExportEntry) -> bool {
        let peers = self.peers.read();
        entry.clients().any(|client| peers.as_ref().is_none_or(|it| it.is_connected(client)))
    }

    /// Whether an export of the file has this session, or had it.
    pub(super) fn is_of_file(&self, session: &Path) -> bool {
        self.hidden.read().sessions.contains(session)
    }

    /// Starts an open session.
    pub(super) fn begin(&self, layers: SessionLayers) -> RunningSession {
        let running = RunningSession::begin(layers, &self.runtime);
        if let Some(observer) = &*self.observer.read() {
            observer.opened(&running.layers);
        }
        running
    }

    /// Whether a command uses a session.
    pub(super) fn is_in_use(&self, session: &Path) -> bool {
        self.observer.read().as_ref().is_some_and(|observer| observer.is_in_use(session))
    }

    /// Ends the use of a session, and closes it if that was the last one. Blocks.
    pub(super) fn release(&self, lease: SessionLease) -> Result<()> {
        let silent: CopyProgress = Arc::new(|_, _| {});
        self.release_with(lease, PendingAtEnd::Finish, &silent)
    }

    /// As [`Self::release`]; `pending` says what is done about its pending content.
    pub(super) fn release_with(
        &self,
        lease: SessionLease,
        pending: PendingAtEnd,
        progress: &CopyProgress,
    ) -> Result<()> {
        self.sessions.release(lease, |running| self.end(running, pending, progress))
    }

    fn end(
        &self,
        running: RunningSession,
        pending: PendingAtEnd,
        progress: &CopyProgress,
    ) -> Result<()> {
        let database = running.layers.database.clone();
        // A session in memory ends here, and one that is lost has another server.
        let is_lost = running.layers.overlay.is_lost();
        let is_kept = running.layers.memory.is_none() && !is_lost;
        let pending = if is_kept { pending } else { PendingAtEnd::Leave };
        let session = running.layers.session.clone();
        let observer = self.observer.read().clone();
        let left = |left: PendingCopies| {
            let mib = left.bytes.div_ceil(1 << 20);
            tracing::info!(session = %session.display(), left.files, mib, "finishing copies");
            progress(&session, left);
        };
        self.runtime.block_on(async {
            if let Some(observer) = observer {
                observer.closing(&session).await;
            }
            let ended = running.end(pending, left).await.map(drop);
            if let Some(database) = database {
                database.release().await;
            }
            match ended {
                // The database has what was answered.
                Err(error) if is_lost => {
                    tracing::debug!(session = %session.display(), %error, "closed");
                    Ok(())
                }
                ended => ended,
            }
        })
    }

    /// Hides these files and sessions in all bases, in addition to those that are hidden already.
    pub(super) fn hide(&self, files: BTreeSet<PathBuf>, sessions: BTreeSet<PathBuf>) {
        let new = HiddenFiles { files, sessions };
        for layers in self.sessions.all() {
            layers.hide(&new.within(&layers));
        }
        let mut hidden = self.hidden.write();
        hidden.files.extend(new.files);
        hidden.sessions.extend(new.sessions);
    }

    /// Hides in a session's base what no base may show.
    pub(super) fn hide_in(&self, layers: &SessionLayers) {
        let files = self.hidden.read().within(layers);
        layers.hide(&files);
    }

    /// Refuses a base in `exports.d`.
    pub(super) fn check_base(&self, base: &Path) -> Result<()> {
        if real_path(base).starts_with(real_path(&self.added_dir)) {
            let source = std::io::ErrorKind::PermissionDenied.into();
            return Err(Error::Place { path: base.to_owned(), source });
        }
        Ok(())
    }

    /// The path of a session in memory, by a name that is unique in the exports file.
    pub(super) fn memory_file(&self, name: &str) -> Result<PathBuf> {
        let mut memory = self.memory.lock();
        let dir = match &mut *memory {
            Some(dir) => dir,
            none => none.insert(MemoryDir::make().map_err(Error::Memory)?),
        };
        Ok(dir.path().join(name))
    }

    /// Removes a closed session, if it is in memory.
    pub(super) fn forget(&self, session: &Path) {
        if let Some(memory) = &*self.memory.lock() {
            memory.forget(session);
        }
    }

    /// Removes the sessions in memory, all of them closed.
    pub(super) fn forget_memory(&self) {
        *self.memory.lock() = None;
    }
}

impl HiddenFiles {
    /// Those that are in the base of a session.
    fn within(&self, layers: &SessionLayers) -> Vec<PathBuf> {
        let Some(base) = &layers.base else { return Vec::new() };
        let sessions = below(&self.sessions, base).flat_map(|session| session_files(session));
        below(&self.files, base).cloned().chain(sessions).collect()
    }
}

/// Those of `files` that are in the directory `dir`. Paths are ordered by their components, so
/// these follow each other.
fn below<'a>(files: &'a BTreeSet<PathBuf>, dir: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    files.range(dir.to_owned()..).take_while(move |file| file.starts_with(dir))
}
