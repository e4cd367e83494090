//! Serves an exports file: opens its sessions, assembles its exports, and replaces both when the
//! file changes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::accounts::{Accounts, ExportAccount, UsageSource};
use super::error::{Error, Result};
use super::guards::guards;
use super::layers::{self, LayerOptions, ListingMemory, SessionLayers};
use super::memory::MemoryDir;
use super::running::{DroppedSessions, RunningSession, SessionKey, until};
use super::unavailable::{FailedExport, ReadyExport};
use super::{checkpoints, log_bound, this_user};
use crate::config::{
    Config, ExportConfig, MountConfig, QuotaConfig, StoreConfig, real_path, tokens_file,
};
use crate::delta::Limits;
use crate::delta::sqlite::session_files;
use crate::export::{Admission, Export, ExportParts, Exports, Guarding, MountParts, Squash};
use crate::overlay::{Group, Overlay};
use crate::server::RpcProgram;
use crate::validation::{GuardLimits, GuardResources, Periods, ValidatorCommand};
use crate::worker::ThreadWatch;

/// Limit on the files of a session in memory, if its export has no byte quota, in bytes.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;

/// Addition to that limit with a byte quota, besides the quota and a quarter of it, in bytes: for
/// names, whiteouts and the WAL.
const MEMORY_OVERHEAD_BYTES: u64 = 128 << 20;
/// Time to publish drafts while a base hangs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// All sessions and exports of an exports file.
pub struct ServedExports {
    file: PathBuf,
    strict: bool,
    runtime: Handle,
    watch: Arc<ThreadWatch>,
    exports: Exports,
    sessions: HashMap<SessionKey, RunningSession>,
    memory: Option<MemoryDir>,
    /// Resources that the guards of all exports share.
    resources: Arc<GuardResources>,
    accounts: Accounts,
    /// Limits on large listings that all sessions share.
    listings: Arc<ListingMemory>,
    /// Whether exports that cannot be opened are skipped.
    is_lenient: bool,
    /// Exports that cannot be served.
    pub(super) failed: Vec<FailedExport>,
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
        let (exports, sessions) = (Exports::default(), HashMap::new());
        let resources = GuardResources::new(GuardLimits::default(), validators);
        let (file, accounts) = (file.to_owned(), Accounts::new(file));
        let (memory, listings, watch) = (None, Arc::default(), layers::watch(&runtime));
        Self {
            file,
            strict,
            runtime,
            watch,
            exports,
            sessions,
            memory,
            resources,
            accounts,
            listings,
            is_lenient: false,
            failed: Vec::new(),
        }
    }

    /// Skips exports whose session or base cannot be opened. Clients see them as unavailable until
    /// [`ServedExports::retry`] succeeds.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// NFS, MOUNT and NLM for the current exports.
    pub fn programs(&self) -> Vec<Arc<dyn RpcProgram>> {
        layers::programs(Arc::new(self.exports.clone()), self.exports.clone())
    }

    /// The open sessions.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionLayers> {
        self.sessions.values().map(|running| &running.layers)
    }

    /// The exports that are served.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Quota usage of the exports.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// Serves the exports of `config` from now on. Handles of exports that stay remain valid.
    ///
    /// Returns the sessions that are not served any more, still open. Close them with
    /// [`ServedExports::close`] once no request uses them.
    ///
    /// Blocks; must not run on a runtime thread.
    ///
    /// # Errors
    /// A session or a base cannot be opened, or an export cannot be assembled: nothing changes.
    /// With [`ServedExports::lenient`], only if no export can be served, or if the file asks for
    /// something impossible.
    pub fn load(&mut self, config: &Config) -> Result<DroppedSessions> {
        let wanted = self.keys(config)?;
        let files = self.files_to_hide(&wanted);
        for running in self.sessions.values() {
            running.layers.hide(&files);
        }
        let mut opened = HashMap::new();
        let (exports, failed) = match self.open_all(config, &wanted, &files, &mut opened) {
            Ok(exports) => exports,
            Err(error) => {
                self.close(DroppedSessions(opened));
                return Err(error);
            }
        };
        let (exports, accounts): (Vec<_>, Vec<_>) = exports.into_iter().unzip();
        let before = self.exports.all();
        self.exports.replace_with(exports, failed.iter().map(|it| it.shown.clone()).collect());
        self.failed = failed;
        self.accounts.replace(accounts);
        self.settle(&before);
        self.sessions.extend(opened);
        let kept: HashSet<&SessionKey> = wanted.values().collect();
        Ok(DroppedSessions(self.sessions.extract_if(|key, _| !kept.contains(key)).collect()))
    }

    /// Stops serving and closes all sessions. Blocks.
    ///
    /// # Errors
    /// A session was not closed cleanly; the others were still closed.
    pub fn end(&mut self) -> Result<()> {
        let before = self.exports.all();
        self.exports.replace(Vec::new());
        self.accounts.replace(Vec::new());
        self.settle(&before);
        let sessions = std::mem::take(&mut self.sessions);
        // Closes all concurrently: a base that hangs delays no other session.
        let ending: Vec<_> =
            sessions.into_values().map(|running| self.begin_end(running)).collect();
        let ended = ending.into_iter().map(|ending| self.wait_end(ending));
        // Waits for all before returning the first error.
        let ended = ended.collect::<Vec<_>>().into_iter().collect();
        self.memory = None;
        ended
    }

    /// Publishes or discards drafts; stops waiting if a base still hangs after [`SETTLE_TIMEOUT`].
    fn settle(&self, before: &[Arc<Export>]) {
        let overlays: Vec<_> = self.sessions().map(|layers| Arc::clone(&layers.overlay)).collect();
        let given_up = async {
            tokio::time::sleep(SETTLE_TIMEOUT).await;
            until_any_stuck(&overlays).await;
        };
        self.runtime.block_on(async {
            tokio::select! {
                () = Exports::settle(before) => {}
                () = given_up => tracing::warn!("a base hangs; drafts over it are given up"),
            }
        });
    }

    /// The session of each mount, by export name and mount point.
    pub(super) fn keys(
        &mut self,
        config: &Config,
    ) -> Result<HashMap<(String, String), SessionKey>> {
        let mut keys = HashMap::new();
        for export in &config.exports {
            for mount in &export.mounts {
                let file = self.session_of(export, mount)?;
                let key = SessionKey { file, read_only: mount.is_read_only };
                keys.insert((export.name.clone(), mount.at.to_string()), key);
            }
        }
        // A session with any writable mount is opened once, read-write.
        let changed: HashSet<PathBuf> =
            keys.values().filter(|key| !key.read_only).map(|key| key.file.clone()).collect();
        for key in keys.values_mut() {
            key.read_only &= !changed.contains(&key.file);
            // A session that is open read-write stays so; read-only mounts refuse changes
            // themselves.
            let open = SessionKey { read_only: false, ..key.clone() };
            key.read_only &= !self.sessions.contains_key(&open);
        }
        Ok(keys)
    }

    fn session_of(&mut self, export: &ExportConfig, mount: &MountConfig) -> Result<PathBuf> {
        match &mount.store {
            StoreConfig::Session { file, .. } => Ok(real_path(file)),
            StoreConfig::Memory => {
                let dir = match &mut self.memory {
                    Some(dir) => dir,
                    none => none.insert(MemoryDir::make().map_err(Error::Memory)?),
                };
                let place = [export.name.as_bytes(), mount.at.as_str().as_bytes()].join(&0);
                let name = format!("{:016x}.db", layers::digest(b"memory", &place));
                Ok(dir.path().join(name))
            }
        }
    }

    /// Files that no base may show: all sessions, the exports file and its tokens.
    pub(super) fn files_to_hide(
        &self,
        wanted: &HashMap<(String, String), SessionKey>,
    ) -> Vec<PathBuf> {
        let tokens = tokens_file(&self.file);
        let mut files: Vec<PathBuf> =
            [self.file.clone(), tokens].iter().map(|f| real_path(f)).collect();
        files.extend(wanted.values().flat_map(|key| session_files(&key.file)));
        files
    }

    /// Opens missing sessions and assembles the exports; also returns the exports that cannot be
    /// served.
    fn open_all(
        &self,
        config: &Config,
        wanted: &HashMap<(String, String), SessionKey>,
        files: &[PathBuf],
        opened: &mut HashMap<SessionKey, RunningSession>,
    ) -> Result<(Vec<ReadyExport>, Vec<FailedExport>)> {
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        for export in &config.exports {
            let tried = self.open_export(export, wanted, files, opened);
            match tried.and_then(|()| self.assemble(export, wanted, opened)) {
                Ok(export) => made.push(export),
                Err(error) if self.is_lenient && error.is_of_one_export() => {
                    failed.push(FailedExport::new(export, error)?);
                }
                Err(error) => return Err(error),
            }
        }
        if made.is_empty()
            && let Some(error) = failed.pop().and_then(|failed| failed.error)
        {
            return Err(error);
        }
        Ok((made, failed))
    }

    /// Opens the sessions of an export that are not open yet.
    pub(super) fn open_export(
        &self,
        export: &ExportConfig,
        wanted: &HashMap<(String, String), SessionKey>,
        files: &[PathBuf],
        opened: &mut HashMap<SessionKey, RunningSession>,
    ) -> Result<()> {
        for mount in &export.mounts {
            let place = (export.name.clone(), mount.at.to_string());
            let Some(key) = wanted.get(&place) else { continue };
            if let Some(running) = self.sessions.get(key).or_else(|| opened.get(key)) {
                check_same_settings(&running.layers, export, mount)?;
                continue;
            }
            if self.sessions.contains_key(&SessionKey { read_only: true, ..key.clone() }) {
                return Err(differs(&key.file, export, mount, "options"));
            }
            let chunk_size = match &mount.store {
                StoreConfig::Session { chunk_size, .. } => *chunk_size,
                StoreConfig::Memory => None,
            };
            let wanted = LayerOptions {
                chunk_size,
                read_only: key.read_only,
                strict: self.strict,
                hide: Arc::clone(&mount.hide),
                keep_originals: mount.keep_originals,
                keep_log: mount.keep_log.map(log_bound::of_config),
                checkpoints: checkpoints::of_mount(mount),
                keep_checkpoints: mount.keep_checkpoints.map(checkpoints::keep_of),
                // The exports file names the base explicitly; whether it is the same tree is
                // checked.
                moved: true,
                memory_bytes: (mount.store == StoreConfig::Memory)
                    .then(|| memory_bytes(limits(export))),
                listings: Arc::clone(&self.listings),
                ..LayerOptions::new(&key.file, mount.base.as_deref())
            };
            let opening = layers::open(&wanted, &self.watch);
            // A failed open may have created the file.
            let layers = opening.inspect_err(|_| self.forget(&key.file))?;
            layers.hide(files);
            opened.insert(key.clone(), RunningSession::begin(layers, &self.runtime));
        }
        Ok(())
    }

    pub(super) fn assemble(
        &self,
        export: &ExportConfig,
        wanted: &HashMap<(String, String), SessionKey>,
        opened: &HashMap<SessionKey, RunningSession>,
    ) -> Result<(Arc<Export>, ExportAccount)> {
        let quota = limits(export);
        let group = quota.is_some().then(|| Arc::new(Group::new(quota)));
        let mut account = ExportAccount::new(export, group.clone());
        let mut mounts = Vec::new();
        for mount in &export.mounts {
            let place = (export.name.clone(), mount.at.to_string());
            let key = wanted.get(&place).ok_or(Error::NoExport)?;
            let running = self.sessions.get(key).or_else(|| opened.get(key));
            let layers = &running.ok_or(Error::NoExport)?.layers;
            let (part, counted) = self.mount_parts(mount, layers, quota, group.as_ref())?;
            account.add(mount, counted);
            mounts.push(part);
        }
        let guards = guards(export)?;
        let resources = self.resources.export(&guards).map_err(|error| {
            let (export, source) = (export.name.clone(), error.into());
            Error::Guard { export, source }
        })?;
        let guarding = Guarding {
            guards,
            resources,
            boot: getrandom::u64().map_err(|error| Error::Random(std::io::Error::other(error)))?,
            periods: Periods::default(),
        };
        let path = export.path.as_ref().ok_or(Error::NoExport)?;
        let name = match &export.token {
            Some(token) => format!("{}#{}", export.name, token.mark()),
            None => export.name.clone(),
        };
        let parts = ExportParts {
            path: path.to_string().into(),
            name: name.into(),
            is_secret: export.is_secret,
            admission: Admission::new(export),
            squash: Squash::new(export),
            mounts,
            guarding,
            owner: this_user(),
        };
        let made = self.runtime.block_on(Export::new(parts));
        let failed = |source| Error::Export { export: export.name.clone(), source };
        Ok((Arc::new(made.map_err(failed)?), account))
    }

    /// The parts of a mount, and the source of its session's usage.
    fn mount_parts(
        &self,
        mount: &MountConfig,
        layers: &SessionLayers,
        quota: Limits,
        group: Option<&Arc<Group>>,
    ) -> Result<(MountParts, UsageSource)> {
        let mut overlay = Overlay::clone(&layers.overlay);
        let file = layers.session.clone();
        if let Some(bound) = &layers.memory {
            bound.set(memory_bytes(quota));
        }
        let in_memory = mount.store == StoreConfig::Memory && quota.bytes.is_none();
        let memory = (in_memory && !mount.is_read_only).then(|| {
            let bytes = Some(MAX_MEMORY_BYTES);
            Arc::new(Group::new(Limits { bytes, ..Limits::default() }))
        });
        for group in group.into_iter().chain(&memory).filter(|_| !mount.is_read_only) {
            let joined = self.runtime.block_on(overlay.join(group));
            joined.map_err(|source| Error::Quota { session: file.clone(), source })?;
        }
        let parts = MountParts {
            at: mount.at.to_string(),
            overlay,
            subtree: mount.subtree.to_string(),
            read_only: mount.is_read_only,
            file_bytes: quota.file_bytes,
            handle_key: layers.handle_key,
        };
        Ok((parts, UsageSource::Open { overlay: Arc::downgrade(&layers.overlay), file, memory }))
    }

    /// Finishes and closes sessions. Blocks.
    pub fn close(&self, gone: DroppedSessions) {
        for (key, running) in gone.0 {
            if let Err(error) = self.end_one(running) {
                tracing::error!(%error, "a session was not closed cleanly");
            }
            self.forget(&key.file);
        }
    }

    /// Removes a closed session that is in memory.
    fn forget(&self, session: &Path) {
        if let Some(memory) = &self.memory {
            memory.forget(session);
        }
    }

    fn end_one(&self, running: RunningSession) -> Result<()> {
        self.wait_end(self.begin_end(running))
    }

    fn begin_end(&self, running: RunningSession) -> JoinHandle<Result<()>> {
        let session = running.layers.session.clone();
        let left = move |left: crate::delta::PendingCopies| {
            let mib = left.bytes.div_ceil(1 << 20);
            tracing::info!(session = %session.display(), left.files, mib, "finishing copies");
        };
        self.runtime.spawn(async move { running.end(left).await.map(drop) })
    }

    fn wait_end(&self, ending: JoinHandle<Result<()>>) -> Result<()> {
        self.runtime.block_on(ending).unwrap_or_else(|error| {
            tracing::error!(%error, "a session was not closed");
            Ok(())
        })
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
    let mounts = config.exports.iter().flat_map(|export| &export.mounts);
    mounts.filter_map(|mount| mount.base.clone())
}

/// Waits until the base of any overlay is stuck.
pub async fn until_any_stuck(overlays: &[Arc<Overlay>]) {
    until(|| overlays.iter().any(|overlay| overlay.is_base_stuck())).await;
}

/// Checks that a mount's settings match those that its session was opened with.
fn check_same_settings(
    layers: &SessionLayers,
    export: &ExportConfig,
    mount: &MountConfig,
) -> Result<()> {
    let base = mount.base.as_deref().map(real_path);
    let is_memory = mount.store == StoreConfig::Memory;
    let hides = layers.asked_hidden == mount.hide;
    let key = match (&base, &layers.base) {
        (base, layers) if base != layers && (base.is_some() || is_memory) => "base",
        (_, Some(_)) if !hides => "hide",
        _ if layers.keep_originals != mount.keep_originals => "keep_originals",
        _ if layers.keep_log != mount.keep_log.map(log_bound::of_config) => "keep_log",
        _ if layers.checkpoints != checkpoints::of_mount(mount) => "checkpoints",
        _ if layers.keep_checkpoints != mount.keep_checkpoints.map(checkpoints::keep_of) => {
            "keep_checkpoints"
        }
        _ => return Ok(()),
    };
    Err(differs(&layers.session, export, mount, key))
}

fn differs(session: &Path, export: &ExportConfig, mount: &MountConfig, key: &'static str) -> Error {
    let (session, at) = (session.to_owned(), mount.at.to_string());
    Error::Differs { session, export: export.name.clone(), at, key }
}

/// Limit on the files of a session in memory, in bytes, under its export's limits.
fn memory_bytes(limits: Limits) -> u64 {
    let with_pages = |bytes: u64| bytes.saturating_add(bytes / 4);
    limits
        .bytes
        .map_or(MAX_MEMORY_BYTES, |bytes| with_pages(bytes).saturating_add(MEMORY_OVERHEAD_BYTES))
}

pub(super) fn limits(export: &ExportConfig) -> Limits {
    let QuotaConfig { bytes, files } = export.quota;
    Limits { bytes, files, file_bytes: export.max_file_bytes }
}
