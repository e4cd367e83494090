//! Serves an exports file: opens its exports when they are needed, closes them when they are idle,
//! and replaces them when the file changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::accounts::Accounts;
use super::error::{Error, Result};
use super::idle::IDLE_LOOK_INTERVAL;
use super::layers::{self, SessionLayers};
use super::on_demand::{ExportSource, Identities, NeededSession};
use super::open_sessions::SessionLease;
use super::running::until;
use super::shared_parts::SharedParts;
use super::unavailable::FailedExport;
use crate::config::{Config, ExportConfig, MountConfig, StoreConfig, real_path, tokens_file};
use crate::delta::sqlite::session_files;
use crate::export::{Export, ExportEntry, Exports, OpenPurpose};
use crate::overlay::Overlay;
use crate::server::RpcProgram;
use crate::validation::{GuardLimits, GuardResources, ValidatorCommand};

pub use super::assembling::MAX_MEMORY_BYTES;
pub use super::idle::OpenBounds;
pub use super::shared_parts::SessionObserver;

/// Exports that are opened at the start, in the order of the file, so that what is wrong with them
/// is reported at once. The others are opened by the first call that needs them.
pub const OPEN_AT_START: usize = 64;

/// Time to publish drafts while a base hangs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// All sessions and exports of an exports file.
pub struct ServedExports {
    file: PathBuf,
    pub(super) parts: Arc<SharedParts>,
    sources: Vec<Arc<ExportSource>>,
    accounts: Accounts,
    /// Whether exports that cannot be opened are skipped.
    is_lenient: bool,
    /// Exports that cannot be served.
    pub(super) failed: Vec<FailedExport>,
    /// Closes idle exports.
    closing: Option<JoinHandle<()>>,
}

/// Sessions that exports no longer use; those that no export uses are still open.
#[must_use]
pub struct DroppedSessions(Vec<SessionLease>);

/// An export of a file that is being loaded.
struct LoadedExport {
    source: Arc<ExportSource>,
    entry: Arc<ExportEntry>,
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
        let watch = layers::watch(&runtime);
        Self {
            file: file.to_owned(),
            parts: Arc::new(SharedParts::new(strict, runtime, watch, resources)),
            sources: Vec::new(),
            accounts: Accounts::new(file),
            is_lenient: false,
            failed: Vec::new(),
            closing: None,
        }
    }

    /// Skips exports whose session or base cannot be opened. Clients see them as unavailable until
    /// [`ServedExports::retry`] succeeds.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// Informs `observer` of sessions that are open, and of all that are opened and closed from now
    /// on.
    pub fn observe(&self, observer: Arc<dyn SessionObserver>) {
        self.parts.observe(observer);
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
        self.accounts.clone()
    }

    /// Serves the exports of `config` from now on. Handles of exports that stay remain valid.
    ///
    /// The first [`OPEN_AT_START`] exports and those that were open are opened now, all if the
    /// server is not [lenient](ServedExports::lenient).
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
    pub fn load(&mut self, config: &Config) -> Result<DroppedSessions> {
        *self.parts.bounds.write() = OpenBounds::of(config);
        let sessions = self.sessions_of(config)?;
        self.parts.hide(self.files_to_hide(&sessions));
        let mut loaded = Vec::new();
        let failed = match self.open_all(config, &sessions, &mut loaded) {
            Ok(failed) => failed,
            Err(error) => {
                let opened = loaded.iter().flat_map(|it| it.source.retire().1).collect();
                self.share_sources();
                self.close(DroppedSessions(opened));
                return Err(error);
            }
        };
        let shown = failed.iter().map(|it| it.shown.clone()).collect();
        let entries = loaded.iter().map(|it| Arc::clone(&it.entry)).collect();
        let before = std::mem::replace(
            &mut self.sources,
            loaded.into_iter().map(|it| it.source).collect(),
        );
        let replaced = self.parts.exports.all();
        self.parts.exports.replace(entries, shown);
        self.failed = failed;
        self.share_sources();
        self.begin_closing();
        Ok(self.retire(before, replaced))
    }

    /// Stops serving and closes all sessions. Blocks.
    ///
    /// # Errors
    /// A session was not closed cleanly; the others were still closed.
    pub fn end(&mut self) -> Result<()> {
        if let Some(closing) = self.closing.take() {
            closing.abort();
        }
        let replaced = self.parts.exports.all();
        self.parts.exports.replace(Vec::new(), Vec::new());
        self.parts.sources.write().clear();
        self.accounts.replace(Vec::new());
        let before = std::mem::take(&mut self.sources);
        let DroppedSessions(leases) = self.retire(before, replaced);
        // Closes all concurrently: a base that hangs delays no other session.
        let ended = std::thread::scope(|scope| {
            let mut ending = Vec::new();
            for leases in split(leases, layers::network_threads()) {
                let parts = &self.parts;
                ending.push(scope.spawn(move || {
                    // Closes all before returning the first error.
                    let closed: Vec<_> = leases.into_iter().map(|it| parts.release(it)).collect();
                    closed.into_iter().collect::<Result<()>>()
                }));
            }
            let ended: Vec<_> = ending.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().filter_map(std::result::Result::ok).collect()
        });
        self.parts.forget_memory();
        ended
    }

    /// Releases sessions, and closes those that no export uses. Blocks.
    pub fn close(&self, gone: DroppedSessions) {
        for lease in gone.0 {
            let file = lease.layers.session.clone();
            if let Err(error) = self.parts.release(lease) {
                tracing::error!(%error, "a session was not closed cleanly");
            }
            let is_needed = |source: &Arc<ExportSource>| source.needs(&file);
            if !self.sources.iter().any(is_needed) {
                self.parts.forget(&file);
            }
        }
    }

    /// Closes exports that are idle, from the first load on.
    fn begin_closing(&mut self) {
        let parts = Arc::downgrade(&self.parts);
        self.closing.get_or_insert_with(|| {
            self.parts.runtime.spawn(async move {
                loop {
                    tokio::time::sleep(IDLE_LOOK_INTERVAL).await;
                    let Some(parts) = parts.upgrade() else { return };
                    let _ended = tokio::task::spawn_blocking(move || parts.close_idle()).await;
                }
            })
        });
    }

    /// Ends the use of exports that were replaced: publishes their drafts, or discards them.
    fn retire(
        &self,
        sources: Vec<Arc<ExportSource>>,
        entries: Vec<Arc<ExportEntry>>,
    ) -> DroppedSessions {
        let (mut exports, mut leases) = (Vec::new(), Vec::new());
        for source in sources {
            let (export, taken) = source.retire();
            exports.extend(export);
            leases.extend(taken);
        }
        // Until here they keep the exports of their sources open.
        drop(entries);
        self.settle(&exports);
        DroppedSessions(leases)
    }

    /// Publishes or discards drafts; stops waiting if a base still hangs after [`SETTLE_TIMEOUT`].
    fn settle(&self, before: &[Arc<Export>]) {
        let layers = self.sessions();
        let overlays: Vec<_> = layers.iter().map(|layers| Arc::clone(&layers.overlay)).collect();
        let given_up = async {
            tokio::time::sleep(SETTLE_TIMEOUT).await;
            until_any_stuck(&overlays).await;
        };
        self.parts.runtime.block_on(async {
            tokio::select! {
                () = Exports::settle(before) => {}
                () = given_up => tracing::warn!("a base hangs; drafts over it are given up"),
            }
        });
    }

    /// The sessions of each export's mounts.
    pub(super) fn sessions_of(&self, config: &Config) -> Result<Vec<Vec<NeededSession>>> {
        let mut sessions = Vec::with_capacity(config.exports.len());
        for export in &config.exports {
            let session = |mount: &MountConfig| {
                let file = self.session_of(export, mount)?;
                Ok(NeededSession { file, read_only: mount.is_read_only })
            };
            sessions.push(export.mounts.iter().map(session).collect::<Result<Vec<_>>>()?);
        }
        // A session with any writable mount is opened once, read-write.
        let all = sessions.iter().flatten();
        let changed: BTreeSet<PathBuf> =
            all.filter(|it| !it.read_only).map(|it| it.file.clone()).collect();
        for session in sessions.iter_mut().flatten() {
            session.read_only &= !changed.contains(&session.file);
            // A session that is open read-write stays so; read-only mounts refuse changes
            // themselves.
            session.read_only &= !self.parts.sessions.is_open_to_change(&session.file);
        }
        Ok(sessions)
    }

    fn session_of(&self, export: &ExportConfig, mount: &MountConfig) -> Result<PathBuf> {
        match &mount.store {
            StoreConfig::Session { file, .. } => Ok(real_path(file)),
            StoreConfig::Memory => {
                let place = [export.name.as_bytes(), mount.at.as_str().as_bytes()].join(&0);
                let name = format!("{:016x}.db", layers::digest(b"memory", &place));
                self.parts.memory_file(&name)
            }
        }
    }

    /// Files that no base may show: all sessions, the exports file and its tokens.
    fn files_to_hide(&self, sessions: &[Vec<NeededSession>]) -> BTreeSet<PathBuf> {
        let tokens = tokens_file(&self.file);
        let mut files: BTreeSet<PathBuf> =
            [&self.file, &tokens].iter().map(|file| real_path(file)).collect();
        files.extend(sessions.iter().flatten().flat_map(|session| session_files(&session.file)));
        files
    }

    /// Makes the exports of `config`, and opens those that are to be open; returns those that
    /// cannot be served.
    fn open_all(
        &self,
        config: &Config,
        sessions: &[Vec<NeededSession>],
        loaded: &mut Vec<LoadedExport>,
    ) -> Result<Vec<FailedExport>> {
        let open: BTreeSet<_> = self.open_paths();
        let mut identities = Identities::default();
        let mut failed = Vec::new();
        for (index, (export, sessions)) in config.exports.iter().zip(sessions).enumerate() {
            let path = export.path.as_ref().ok_or(Error::NoExport)?;
            let is_open = open.contains(path.as_str().as_bytes());
            let opens = index < OPEN_AT_START || is_open || !self.is_lenient;
            match self.load_one(export, sessions, &mut identities, opens) {
                Ok(export) => loaded.push(export),
                Err(error) if self.is_lenient && error.is_of_one_export() => {
                    failed.push(FailedExport::new(export, error)?);
                }
                Err(error) => return Err(error),
            }
        }
        if loaded.is_empty()
            && let Some(error) = failed.pop().and_then(|failed| failed.error)
        {
            return Err(error);
        }
        Ok(failed)
    }

    fn load_one(
        &self,
        export: &ExportConfig,
        sessions: &[NeededSession],
        identities: &mut Identities,
        opens: bool,
    ) -> Result<LoadedExport> {
        let identity = if opens { None } else { identities.of(export, sessions)? };
        let made = ExportSource::new(&self.parts, export.clone(), sessions.to_owned(), identity);
        let (source, entry) = made?;
        // Known before the load ends, so that room can be made for the next ones.
        self.parts.sources.write().push(Arc::downgrade(&source));
        if opens {
            self.parts.make_room(sessions.len())?;
            source.open_now(OpenPurpose::Mount)?;
        }
        Ok(LoadedExport { source, entry })
    }

    /// Opens and serves an export that could not be served.
    pub(super) fn serve_again(
        &mut self,
        export: &ExportConfig,
        sessions: &[NeededSession],
    ) -> Result<()> {
        let LoadedExport { source, entry } =
            self.load_one(export, sessions, &mut Identities::default(), true)?;
        self.sources.push(source);
        self.parts.exports.put(entry);
        self.share_sources();
        Ok(())
    }

    /// Makes the sources known to all who close idle exports or show their usage.
    fn share_sources(&self) {
        *self.parts.sources.write() = self.sources.iter().map(Arc::downgrade).collect();
        self.accounts.replace(self.sources.iter().map(|it| it.account()).collect());
    }

    /// The paths of the exports that are open.
    fn open_paths(&self) -> BTreeSet<Vec<u8>> {
        let entries = self.sources.iter().filter_map(|source| source.entry());
        let open = entries.filter(|entry| entry.current().is_some());
        open.map(|entry| entry.path().to_vec()).collect()
    }
}

/// Divides leases into at most `most` parts of about the same size.
fn split(mut leases: Vec<SessionLease>, most: usize) -> Vec<Vec<SessionLease>> {
    let size = leases.len().div_ceil(most).max(1);
    let mut parts = Vec::new();
    while !leases.is_empty() {
        parts.push(leases.split_off(leases.len().saturating_sub(size)));
    }
    parts
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
