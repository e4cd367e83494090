//! Serves an exports file: opens its exports when they are needed, closes them when they are idle,
//! and replaces them when the file changes.
//!
//! A [`ServedExports`] has one source (`on_demand`) for each export, open or closed, and the
//! parts (`shared_parts`) that all of them share: the table of exports, the open sessions, the
//! registry of instances. `loading` makes the sources of a file that is read, `openings` joins
//! the calls that wait for one, `idle` and `closing` close it. `templates` makes the exports
//! that clients mount, and `expiry` removes those that nothing uses.

pub(super) mod assembling;
mod awaited;
pub mod base_probes;
pub mod closing;
mod databases;
mod expiry;
mod host_mounts;
mod identities;
mod idle;
pub mod listed;
mod loading;
mod losing;
mod on_demand;
mod open_sessions;
mod openings;
mod probe_threads;
mod removing;
mod shared_parts;
mod templates;
pub mod unavailable;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::accounts::Accounts;
use super::error::{Error, Result};
use super::layers::{self, SessionLayers};
use super::running::until;
use crate::config::limits::DEFAULT_MAX_OPEN;
use crate::config::{
    Config, ExportConfig, MountConfig, RealPaths, SoughtPaths, StoreConfig, TemplateConfig,
    added_dir, lock_file, real_path, tokens_file,
};
use crate::control::control_socket;
use crate::delta::sqlite::{InstanceRegistry, session_files};
use crate::export::{Exports, FindExport};
use crate::overlay::Overlay;
use crate::server::{Peers, RpcProgram};
use crate::validation::{GuardLimits, GuardResources, ValidatorCommand};
use awaited::tell_of_awaited;
use base_probes::BaseProbes;
use closing::DroppedSessions;
use idle::IDLE_CHECK_INTERVAL;
use loading::{LoadPlan, WantedExport, WantedInstance};
use on_demand::NeededSession;
use shared_parts::SharedParts;
use templates::{KnownInstance, Templates, known, rebuild};
use unavailable::FailedExport;

pub use super::memory::MAX_MEMORY_BYTES;
pub use databases::DatabaseSettings;
pub use idle::{MAX_AWAKE, OpenBounds};
pub use shared_parts::SessionObserver;
pub use templates::registry_file;

/// Exports that are opened at the start, in the order of the file, so that what is wrong with them
/// is reported at once. The others are opened by the first call that needs them.
pub const OPEN_AT_START: usize = 64;

/// A file that asks for more open sessions than there are file descriptors for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoomShortage {
    wanted: usize,
    room: usize,
}

/// All sessions and exports of an exports file.
pub struct ServedExports {
    file: PathBuf,
    pub(super) parts: Arc<SharedParts>,
    /// Whether exports that cannot be opened are skipped.
    pub(super) is_lenient: bool,
    /// The sessions for which the process has file descriptors.
    room: usize,
    /// The bound that was logged last, if it is not that of the file.
    told_room: Option<RoomShortage>,
    /// Directories of sessions that did not answer: nothing in them is looked up.
    hanging: BTreeSet<PathBuf>,
    /// Exports that cannot be served.
    failed: Vec<FailedExport>,
    /// Closes idle exports, and removes what has expired.
    pub(super) upkeep: Vec<JoinHandle<()>>,
}

impl ServedExports {
    /// Serves nothing until [`ServedExports::load`]. `validators` starts validator processes;
    /// without it, exports with schemas are rejected.
    pub fn new(
        file: &Path,
        strict: bool,
        runtime: Handle,
        validators: Option<ValidatorCommand>,
    ) -> Self {
        let resources = GuardResources::new(GuardLimits::default(), validators);
        let (pool, accounts) = (layers::pool(&runtime), Accounts::new(file));
        Self {
            file: file.to_owned(),
            parts: Arc::new(SharedParts::new(strict, runtime, pool, resources, accounts, file)),
            is_lenient: false,
            room: usize::MAX,
            told_room: None,
            hanging: BTreeSet::new(),
            failed: Vec::new(),
            upkeep: Vec::new(),
        }
    }

    /// Skips exports whose session or base cannot be opened. Clients see them as unavailable until
    /// [`ServedExports::retry`] succeeds.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// Whether an export that cannot be opened fails a load.
    pub fn is_strict(&self) -> bool {
        !self.is_lenient
    }

    /// Opens no more than this number of sessions at once, for want of file descriptors.
    #[must_use]
    pub fn with_room_for(self, sessions: usize) -> Self {
        Self { room: sessions, ..self }
    }

    /// Opens sessions in databases like this.
    #[must_use]
    pub fn with_databases(self, settings: DatabaseSettings) -> Self {
        self.parts.databases.set(settings);
        self
    }

    /// Informs `observer` of sessions that are open, and of all that are opened and closed from now
    /// on.
    pub fn observe(&self, observer: Arc<dyn SessionObserver>) {
        self.parts.observe(observer);
    }

    /// The connections of the server that serves these exports. Until they are known, no instance
    /// that a client has used expires.
    pub fn know_peers(&self, peers: Arc<Peers>) {
        self.parts.know_peers(peers);
    }

    /// NFS, MOUNT and NLM for the current exports.
    pub fn programs(&self) -> Vec<Arc<dyn RpcProgram>> {
        layers::programs(Arc::new(self.exports().clone()), self.exports().clone())
    }

    /// The open sessions.
    pub fn sessions(&self) -> Vec<Arc<SessionLayers>> {
        self.parts.sessions.all()
    }

    /// The exports that are served.
    pub fn exports(&self) -> &Exports {
        &self.parts.exports
    }

    /// Quota usage of the exports.
    pub fn accounts(&self) -> Accounts {
        self.parts.accounts.clone()
    }

    /// Asks bases whether they answer, without the server.
    pub fn probes(&self) -> BaseProbes {
        self.parts.probes.clone()
    }

    /// The bases that [`ServedExports::load`] may open: those of `config`, and of exports that are
    /// open; of these also the directories of their sessions.
    pub fn bases(&self, config: &Config) -> BTreeSet<PathBuf> {
        let sources = self.parts.sources();
        let open = sources.iter().filter(|it| it.entry().is_some_and(|it| it.current().is_some()));
        // The file does not say where the sessions of instances are.
        let of_open =
            open.flat_map(|it| given_bases(&it.config).chain(session_dirs_of(&it.config)));
        bases(config).chain(of_open).collect()
    }

    /// Serves the exports of `config` from now on. Handles of exports that stay remain valid.
    /// `hanging` are [bases](ServedExports::bases) and directories of sessions that do not answer:
    /// exports over them stay as they are; new ones are closed, or cannot be served.
    ///
    /// The first [`OPEN_AT_START`] exports, as many that are new or changed, and those that were
    /// open are opened now, all if the server is not [lenient](ServedExports::lenient).
    ///
    /// Returns the sessions of exports that are no longer served. Close them with
    /// [`ServedExports::close`] once no request uses them.
    ///
    /// Blocks; must not run on a runtime thread.
    ///
    /// # Errors
    /// A session or a base cannot be opened, or an export cannot be assembled: nothing changes.
    /// With [`ServedExports::lenient`], only if no export can be served, or if the file asks for
    /// something impossible.
    pub fn load(
        &mut self,
        config: &Config,
        hanging: &BTreeSet<PathBuf>,
    ) -> Result<DroppedSessions> {
        self.load_added(config, hanging, None)
    }

    /// As [`ServedExports::load`]; also fails if the export `added` cannot be opened.
    ///
    /// # Errors
    /// As [`ServedExports::load`].
    pub fn load_added(
        &mut self,
        config: &Config,
        hanging: &BTreeSet<PathBuf>,
        added: Option<&str>,
    ) -> Result<DroppedSessions> {
        let parts = Arc::clone(&self.parts);
        // Before all else waits.
        parts.look_at_databases(config);
        let loading = parts.loading.write();
        self.avoid(hanging);
        let known = self.parts.templates_if_same(&config.templates);
        // With the same templates, a mount that is making an export continues.
        let same_finder = known.as_ref().and_then(|_| self.parts.exports.finder());
        let made = || config.templates.iter().cloned().map(Arc::new).collect();
        let templates: Vec<_> = known.unwrap_or_else(made);
        let mut wanted = self.wanted(config, &templates)?;
        let unserved = self.take_unserved(&mut wanted, added)?;
        let sessions = wanted.iter().filter_map(|wanted| wanted.sessions.as_ref()).flatten();
        let files = sessions.filter(|session| session.database.is_none());
        let sessions = files.map(|session| session.file.clone()).collect();
        let has_databases = config.exports.iter().any(|it| it.urls().next().is_some());
        self.parts.hide(self.files_to_hide(&templates, has_databases), sessions);
        let open = self.open_paths();
        let mut before = self.parts.sources();
        let by_path = before.iter().filter_map(|it| Some((it.path()?.to_owned(), Arc::clone(it))));
        let plan = LoadPlan { open, hanging, before: by_path.collect(), added };
        let bounds = self.open_bounds(config);
        let bounds_before = std::mem::replace(&mut *self.parts.bounds.write(), bounds);
        let mut loaded = Vec::new();
        let failed = match self.open_all(wanted, &plan, &mut loaded) {
            Ok(failed) => failed.into_iter().chain(unserved).collect::<Vec<_>>(),
            Err(error) => {
                loaded.retain(|it| !it.stays);
                let memory = loaded.iter().flat_map(|it| it.source.memory_files()).collect();
                let opened = loaded.iter().flat_map(|it| it.source.retire().1).collect();
                let _loaded = self.parts.replace_sources(before);
                *self.parts.bounds.write() = bounds_before;
                drop(loading);
                self.close(DroppedSessions { leases: opened, memory });
                return Err(error);
            }
        };
        let shown = failed.iter().map(|it| it.shown.clone()).collect();
        let replaced = self.parts.exports.all();
        let stay = loaded.iter().filter(|it| it.stays).map(|it| Arc::as_ptr(&it.source));
        let stay: HashSet<_> = stay.collect();
        before.retain(|source| !stay.contains(&Arc::as_ptr(source)));
        tell_of_awaited(&loaded);
        let (sources, entries) = loaded.into_iter().map(|it| (it.source, it.entry)).unzip();
        self.parts.keep_templates(templates.clone());
        let is_any = !templates.is_empty();
        if !is_any {
            self.parts.keep_registry(None);
        }
        let finder = same_finder.or_else(|| {
            let finder = || Arc::new(Templates::new(&self.parts, templates));
            is_any.then(finder).map(|finder| finder as Arc<dyn FindExport>)
        });
        self.parts.exports.replace(entries, shown, finder);
        let _all = self.parts.replace_sources(sources);
        if self.upkeep.is_empty() {
            // The start may have taken long.
            self.parts.expiry.begin();
        }
        drop(loading);
        self.failed = failed;
        self.list_failed();
        self.begin_upkeep();
        Ok(self.retire(before, replaced))
    }

    /// Closes exports that are idle, removes what has expired, and looks for sessions whose
    /// filesystem was not mounted, from the first load on.
    fn begin_upkeep(&mut self) {
        if self.upkeep.is_empty() {
            self.upkeep.push(self.repeat(SharedParts::close_idle));
            // On its own: deleting large files takes long.
            self.upkeep.push(self.repeat(SharedParts::expire));
            // On its own: the filesystem of a session may hang.
            self.upkeep.push(self.repeat(SharedParts::find_awaited));
        }
    }

    fn repeat(&self, work: fn(&SharedParts)) -> JoinHandle<()> {
        let parts = Arc::downgrade(&self.parts);
        self.parts.runtime.spawn(async move {
            loop {
                tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
                let Some(parts) = parts.upgrade() else { return };
                let _ended = tokio::task::spawn_blocking(move || work(&parts)).await;
            }
        })
    }

    /// What `config` asks for: its exports, and the instances of templates that were ever made.
    fn wanted(
        &self,
        config: &Config,
        templates: &[Arc<TemplateConfig>],
    ) -> Result<Vec<WantedExport>> {
        let sessions = self.sessions_of(config)?;
        let mut wanted: Vec<_> = config
            .exports
            .iter()
            .cloned()
            .zip(sessions)
            .map(|(config, sessions)| WantedExport {
                config: Arc::new(config),
                sessions: Some(sessions),
                instance: None,
            })
            .collect();
        if templates.is_empty() {
            return Ok(wanted);
        }
        if self.parts.with_registry(|_| ()).is_none() {
            let (registry, is_new) =
                InstanceRegistry::open(&registry_file(&self.file)).map_err(Error::Registry)?;
            if is_new {
                rebuild(&self.parts, &registry, templates)?;
                registry.complete().map_err(Error::Registry)?;
            }
            self.parts.keep_registry(Some(registry));
            self.parts.expiry.begin();
            self.parts.finish_renaming()?;
        }
        self.parts.save_uses();
        let known = self.parts.with_registry(|registry| known(&self.parts, registry, templates));
        for known in known.unwrap_or_else(|| Ok(Vec::new()))? {
            let KnownInstance { template, config, keys, used_ms } = known;
            let instance = Some(WantedInstance { template, keys, used_ms });
            let config = Arc::new(config);
            wanted.push(WantedExport { config, sessions: None, instance });
        }
        Ok(wanted)
    }

    /// The sessions of each export's mounts.
    fn sessions_of(&self, config: &Config) -> Result<Vec<Vec<NeededSession>>> {
        let mut real = RealPaths::avoiding(&self.hanging);
        let exports = config.exports.iter();
        let sessions = exports.map(|export| sessions_among(&self.parts, export, &mut real));
        let mut sessions = sessions.collect::<Result<Vec<_>>>()?;
        // A session with any writable mount is opened once, read-write.
        let all = sessions.iter().flatten();
        let changed: BTreeSet<PathBuf> =
            all.filter(|it| !it.read_only).map(|it| it.file.clone()).collect();
        for session in sessions.iter_mut().flatten() {
            session.read_only &= !changed.contains(&session.file);
        }
        Ok(sessions)
    }

    /// Files and directories that no base may show, beside sessions: the exports file and what the
    /// server keeps beside it, and the directories of replicas and of the sessions of templates.
    fn files_to_hide(
        &self,
        templates: &[Arc<TemplateConfig>],
        has_databases: bool,
    ) -> BTreeSet<PathBuf> {
        // Absolute: a file that is made later has the same path then.
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let registry = registry_file(&file);
        let own = [file.clone(), tokens_file(&file), added_dir(&file), lock_file(&file)];
        let mut files: BTreeSet<PathBuf> = own.iter().map(|file| real_path(file)).collect();
        files.extend(session_files(&real_path(&registry)));
        files.insert(control_socket(&real_path(&file)));
        let replicas = self.parts.databases.local().filter(|_| has_databases);
        files.extend(replicas.map(|dir| real_path(&dir)));
        let mut real = RealPaths::avoiding(&self.hanging);
        files.extend(templates.iter().flat_map(|it| it.session_dirs()).map(|dir| real.of(&dir)));
        files
    }

    /// The bounds of `config`, as far as there are file descriptors.
    fn open_bounds(&mut self, config: &Config) -> OpenBounds {
        let bounds = OpenBounds::of(config);
        let shortage = RoomShortage { wanted: bounds.sessions, room: self.room };
        let shortage = Some(shortage).filter(|it| it.wanted > it.room);
        // Once, and not with each reload.
        if shortage.is_some() && shortage != self.told_room {
            let (max_open, sessions) = (bounds.sessions, self.room);
            let what = "fewer sessions may be open, for want of file descriptors (ulimit -n)";
            match max_open == DEFAULT_MAX_OPEN {
                // The exports file does not ask for more.
                true => tracing::info!(max_open, sessions, "{what}"),
                false => tracing::warn!(max_open, sessions, "{what}"),
            }
        }
        self.told_room = shortage;
        OpenBounds { sessions: bounds.sessions.min(self.room), ..bounds }
    }

    /// The paths of the exports that are open.
    fn open_paths(&self) -> BTreeSet<Vec<u8>> {
        let entries = self.parts.exports.all();
        let open = entries.iter().filter(|entry| entry.current().is_some());
        open.map(|entry| entry.path().to_vec()).collect()
    }
}

/// The sessions of an export's mounts, in their order.
fn sessions_of_one(parts: &SharedParts, export: &ExportConfig) -> Result<Vec<NeededSession>> {
    sessions_among(parts, export, &mut RealPaths::default())
}

/// The same; `real` knows directories of other exports, or leaves out those that hang.
fn sessions_among(
    parts: &SharedParts,
    export: &ExportConfig,
    real: &mut RealPaths<'_>,
) -> Result<Vec<NeededSession>> {
    let session = |mount: &MountConfig| {
        let file = match &mount.store {
            StoreConfig::Session { file, .. } => real.of(file),
            StoreConfig::Database { .. } | StoreConfig::Memory => session_of(parts, export, mount)?,
        };
        // A session that is open read-write stays so; read-only mounts refuse changes themselves.
        let may_change = mount.is_shared || parts.sessions.is_open_to_change(&file);
        let database = mount.url().cloned();
        Ok(NeededSession { file, database, read_only: mount.is_read_only && !may_change })
    };
    export.mounts.iter().map(session).collect()
}

pub(super) fn session_of(
    parts: &SharedParts,
    export: &ExportConfig,
    mount: &MountConfig,
) -> Result<PathBuf> {
    match &mount.store {
        StoreConfig::Session { file, .. } => Ok(real_path(file)),
        StoreConfig::Database { url, .. } => Ok(url.key().into()),
        StoreConfig::Memory => {
            let place = [export.name.as_bytes(), mount.at.as_str().as_bytes()].join(&0);
            let name = format!("{:016x}.db", layers::digest(b"memory", &place));
            parts.memory_file(&name)
        }
    }
}

/// Opens all bases of `config` as a test; blocks as long as one hangs.
///
/// # Errors
/// A base cannot be opened.
pub fn probe(config: &Config) -> Result<()> {
    // Probes all, even after a failure, so that any hang happens here.
    let probed: Vec<_> = bases(config).map(|base| layers::probe(&base)).collect();
    probed.into_iter().collect()
}

/// The bases of `config`.
pub fn bases(config: &Config) -> impl Iterator<Item = PathBuf> + '_ {
    config.exports.iter().flat_map(given_bases)
}

/// The sessions of `config`.
pub fn sessions(config: &Config) -> SoughtPaths {
    let mounts = config.exports.iter().flat_map(|export| &export.mounts);
    let files = mounts.filter_map(|mount| mount.session()).cloned().collect();
    SoughtPaths { files, dirs: BTreeSet::new() }
}

fn given_bases(export: &ExportConfig) -> impl Iterator<Item = PathBuf> + '_ {
    export.mounts.iter().filter_map(|mount| mount.base.clone())
}

/// The directories of an export's sessions.
fn session_dirs_of(export: &ExportConfig) -> impl Iterator<Item = PathBuf> + '_ {
    let sessions = export.mounts.iter().filter_map(|mount| mount.session());
    sessions.filter_map(|session| session.parent()).map(Path::to_owned)
}

/// Waits until the base of any overlay is stuck, or its database is away.
pub async fn until_any_stuck(overlays: &[Arc<Overlay>]) {
    let is_stuck = |it: &Arc<Overlay>| it.is_base_stuck() || !it.has_lease();
    until(|| overlays.iter().any(is_stuck)).await;
}
