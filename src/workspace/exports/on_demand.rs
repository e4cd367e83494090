//! Opens an export when a call needs it, and closes it when it is idle.
//!
//! An export is opened as a whole, with all its sessions. Calls wait for that, up to
//! [`OPEN_WAIT`]; it continues without them. Opening and closing block, so each runs on a thread of
//! its own, [bounded](super::shared_parts) in number.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::assembling::{ReadyExport, SessionAccess, assemble, check_same_settings, layer_options};
use super::expiry::InstanceUses;
use super::open_sessions::SessionLease;
use super::openings::{OpenFailure, OpenOutcome};
use super::shared_parts::SharedParts;
use super::templates::{check_places, order_by_place};
use super::{session_of, sessions_among};
use crate::config::{ExportConfig, RealPaths, StoreConfig, TemplateConfig};
use crate::delta::postgres::SessionUrl;
use crate::delta::sqlite::OpenError;
use crate::export::{Admission, Export, ExportEntry, ExportIdentity, OpenExport, OpenPurpose};
use crate::workspace::accounts::{ExportAccount, SharedAccount};
use crate::workspace::error::{Error, Result};
use crate::workspace::layers::{self, SessionLayers};

/// Time that a call waits for an opening; the client then tries again.
pub(super) const OPEN_WAIT: Duration = Duration::from_secs(2);

/// Time to wait for an opening of an export that is replaced.
const RETIRE_WAIT: Duration = Duration::from_millis(500);

/// Time that a session may take to say what it has to copy; then it is not closed.
const PENDING_WAIT: Duration = Duration::from_secs(1);

/// Opens and closes one export of the exports file.
pub(in crate::workspace) struct ExportSource {
    pub(super) parts: Arc<SharedParts>,
    pub(super) config: Arc<ExportConfig>,
    pub(super) kind: SourceKind,
    /// When it was used, if a template made it.
    pub(super) uses: InstanceUses,
    /// Whether it may have sessions in memory.
    pub(super) has_memory: AtomicBool,
    /// The sessions of its mounts, in their order, once they are known: finding them may block.
    sessions: OnceLock<Vec<NeededSession>>,
    /// Identifies the export's drafts: they survive no reload, and no loss of a session.
    pub(super) draft_epoch: AtomicU64,
    pub(super) this: Weak<Self>,
    entry: OnceLock<Weak<ExportEntry>>,
    /// Locked while the export is opened, closed or removed.
    pub(super) state: Mutex<SourceState>,
    /// Another source took its place in the table: it opens no more.
    pub(super) is_retired: AtomicBool,
    /// The instance was removed: the table has another one, or none.
    pub(super) is_removed: AtomicBool,
    /// The opening in progress.
    pub(super) opening: Mutex<Option<watch::Receiver<OpenOutcome>>>,
    pub(super) last_failure: Mutex<Option<OpenFailure>>,
    /// The usage of its sessions.
    pub(super) account: SharedAccount,
    /// When a call was last seen.
    pub(super) last_use: Mutex<Instant>,
    /// The last use after which its sessions were put to rest.
    rested: Mutex<Option<Instant>>,
}

/// Where an export is from.
pub(super) enum SourceKind {
    /// The exports file has it.
    Written,
    /// A template made it for a client's mount.
    Instance(Arc<TemplateConfig>),
}

#[derive(Default)]
pub(super) struct SourceState {
    /// The uses of its sessions, while the export is open.
    pub(super) leases: Vec<SessionLease>,
}

/// A session that an export needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NeededSession {
    /// The session file; of a session in a database its key, which is the path of no file.
    pub(super) file: PathBuf,
    /// The session in a database.
    pub(super) database: Option<Arc<SessionUrl>>,
    /// No mount of any export may change it.
    pub(super) read_only: bool,
}

impl ExportSource {
    /// The source of an export, and the export, closed. `sessions` are those of its mounts, if they
    /// are known; `identity` is known if all of them exist.
    pub(super) fn new(
        parts: &Arc<SharedParts>,
        config: Arc<ExportConfig>,
        sessions: Option<Vec<NeededSession>>,
        identity: Option<ExportIdentity>,
        kind: SourceKind,
    ) -> Result<(Arc<Self>, Arc<ExportEntry>)> {
        let path = config.path.as_ref().ok_or(Error::NoExport)?.to_string();
        let draft_epoch = new_draft_epoch()?;
        let account = Arc::new(RwLock::new(ExportAccount::at_rest(Arc::clone(&config))));
        let has_memory = config.mounts.iter().any(|mount| mount.store == StoreConfig::Memory);
        let source = Arc::new_cyclic(|this| Self {
            parts: Arc::clone(parts),
            config,
            kind,
            uses: InstanceUses::default(),
            has_memory: AtomicBool::new(has_memory),
            sessions: sessions.map(OnceLock::from).unwrap_or_default(),
            draft_epoch: AtomicU64::new(draft_epoch),
            this: Weak::clone(this),
            entry: OnceLock::new(),
            state: Mutex::default(),
            is_retired: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            opening: Mutex::default(),
            last_failure: Mutex::default(),
            account,
            last_use: Mutex::new(Instant::now()),
            rested: Mutex::default(),
        });
        let entry = source.entry_at(path, identity);
        Ok((source, entry))
    }

    fn entry_at(
        self: &Arc<Self>,
        path: String,
        identity: Option<ExportIdentity>,
    ) -> Arc<ExportEntry> {
        let path = bytes::Bytes::from(path);
        let (shown, admission) = ((path, self.config.is_secret), Admission::new(&self.config));
        let opener = Arc::clone(self) as Arc<dyn OpenExport>;
        let known = self.parts.exports.find(&shown.0);
        let clients = known.map(|known| Arc::clone(known.clients())).unwrap_or_default();
        let entry = Arc::new(ExportEntry::new(shown, admission, identity, clients, opener));
        let _first = self.entry.set(Arc::downgrade(&entry));
        entry
    }

    /// The path that clients mount.
    pub(super) fn path(&self) -> Option<&str> {
        self.config.path.as_ref().map(|path| path.as_str())
    }

    /// The export; `None` once it was removed from the table.
    pub(super) fn entry(&self) -> Option<Arc<ExportEntry>> {
        self.entry.get()?.upgrade()
    }

    /// The files of its sessions in memory.
    pub(super) fn memory_files(&self) -> impl Iterator<Item = PathBuf> {
        let mounts = self.config.mounts.iter().filter(|mount| mount.store == StoreConfig::Memory);
        // There are none if they have no directory.
        mounts.filter_map(|mount| session_of(&self.parts, &self.config, mount).ok())
    }

    /// The sessions of its mounts. May block.
    pub(super) fn needed(&self) -> Result<&[NeededSession]> {
        self.needed_by(&mut RealPaths::default())
    }

    /// The same, without a look into directories that hang.
    pub(super) fn needed_avoiding(&self, hanging: &BTreeSet<PathBuf>) -> Result<&[NeededSession]> {
        self.needed_by(&mut RealPaths::avoiding(hanging))
    }

    fn needed_by(&self, real: &mut RealPaths<'_>) -> Result<&[NeededSession]> {
        if self.sessions.get().is_none() {
            let found = sessions_among(&self.parts, &self.config, real)?;
            return Ok(self.sessions.get_or_init(|| found));
        }
        Ok(self.sessions.get().map(Vec::as_slice).unwrap_or_default())
    }

    /// Whether a mount creates the sessions that do not exist.
    pub(super) fn creates(&self) -> bool {
        match &self.kind {
            SourceKind::Written => true,
            SourceKind::Instance(template) => template.creates,
        }
    }

    /// The usage of its sessions.
    pub(super) fn account(&self) -> SharedAccount {
        Arc::clone(&self.account)
    }

    /// Opens the export, with the sessions that are missing. Blocks.
    pub(super) fn open_now(&self, purpose: OpenPurpose) -> Result<Arc<Export>> {
        let mut state = self.state.lock();
        if self.is_removed.load(Ordering::SeqCst) {
            return Err(Error::Gone { export: self.config.name.clone() });
        }
        let reloaded = || Error::Reloaded { export: self.config.name.clone() };
        let entry = self.entry().filter(|_| !self.is_retired()).ok_or_else(reloaded)?;
        self.drop_lost(&mut state);
        if let Some(export) = entry.current() {
            return Ok(export);
        }
        let mut taken = Vec::new();
        let opened = self.open_sessions(purpose, &entry, &mut taken);
        let (export, account) = match opened {
            Ok(made) => made,
            Err(error) => {
                self.release(taken);
                let is_gone = matches!(
                    error,
                    Error::Replaced { .. } | Error::Open(OpenError::Missing { .. })
                );
                if !is_gone {
                    return Err(error);
                }
                let error = self.end_instance(&entry, purpose, error);
                let is_gone = matches!(error, Error::Gone { .. });
                self.is_retired.fetch_or(is_gone, Ordering::SeqCst);
                return Err(error);
            }
        };
        tracing::debug!(export = %self.config.name, "opened");
        state.leases = taken;
        *self.last_use.lock() = Instant::now();
        *self.account.write() = account;
        self.save_opening();
        Ok(export)
    }

    /// Opens the sessions, and the export over them.
    fn open_sessions(
        &self,
        purpose: OpenPurpose,
        entry: &Arc<ExportEntry>,
        taken: &mut Vec<SessionLease>,
    ) -> Result<ReadyExport> {
        let is_known = entry.identity().is_some();
        // Handles of an export whose identity is known are of sessions that exist, or were in
        // memory.
        let existing = purpose == OpenPurpose::Call || is_known || !self.creates();
        let in_memory: Vec<bool> =
            self.config.mounts.iter().map(|mount| mount.store == StoreConfig::Memory).collect();
        if let SourceKind::Instance(template) = &self.kind {
            check_places(template, &self.config, !existing)?;
        }
        // Of a template, a parameter may be the name of the directory.
        let mut bases = self.config.mounts.iter().filter_map(|mount| mount.base.as_deref());
        bases.try_for_each(|base| self.parts.check_base(base))?;
        if !existing {
            self.parts.finish_removals_of(self.needed()?)?;
        }
        self.has_memory.fetch_or(in_memory.contains(&true), Ordering::SeqCst);
        self.take_sessions(existing, taken)?;
        let epoch = self.draft_epoch.load(Ordering::SeqCst);
        let (export, account) = assemble(&self.parts, &self.config, taken, epoch)?;
        // Clients know the handles of the others.
        let is_made = !is_known && purpose != OpenPurpose::Load;
        let _loading = is_made.then(|| self.parts.loading.read());
        if is_made {
            // A load since they were opened may have missed them.
            taken.iter().for_each(|lease| self.parts.hide_in(&lease.layers));
            self.begin(entry, taken)?;
        }
        if self.is_retired() {
            return Err(Error::Reloaded { export: self.config.name.clone() });
        }
        self.learn_identities(taken)?;
        let before = entry.identity();
        if !entry.put_open(Arc::clone(&export), &in_memory) {
            self.forget_identities()?;
            return Err(Error::Replaced { export: self.config.name.clone() });
        }
        // The tags of mounts in memory may have expired.
        if before != entry.identity() || in_memory.contains(&true) {
            self.parts.exports.identify(entry, before.is_some());
        }
        Ok((export, account))
    }

    /// Has the table and each later load know an export before the first client gets its handle.
    ///
    /// # Errors
    /// The exports file was read since the mount began.
    fn begin(&self, entry: &Arc<ExportEntry>, taken: &[SessionLease]) -> Result<()> {
        let is_of_table = match &self.kind {
            SourceKind::Instance(template) => self.parts.has_template(template),
            SourceKind::Written => {
                let known = self.parts.exports.find(entry.path());
                known.is_some_and(|known| Arc::ptr_eq(&known, entry))
            }
        };
        if !is_of_table {
            return Err(Error::Reloaded { export: self.config.name.clone() });
        }
        if let SourceKind::Instance(_) = self.kind {
            let order = order_by_place(&self.config);
            let keys: Vec<_> = order.iter().map(|index| taken[*index].layers.keys()).collect();
            self.parts.record_instance(&self.own_path(), &keys)?;
            self.uses.set_recorded(self.parts.registry_ms());
            self.parts.add(self.this.upgrade().ok_or(Error::NoExport)?);
            self.parts.exports.put(Arc::clone(entry));
            tracing::info!(export = %self.config.name, "a template made this export");
        }
        Ok(())
    }

    /// Forgets an instance without its sessions: the next mount makes it, and its handles are
    /// stale. An export of the file stays, as its sessions may come back.
    fn end_instance(&self, entry: &Arc<ExportEntry>, purpose: OpenPurpose, error: Error) -> Error {
        let SourceKind::Instance(template) = &self.kind else { return error };
        if entry.identity().is_none() {
            // It was never made.
            return error;
        }
        // Where all sessions are gone, their filesystem may not be mounted: calls wait. A mount
        // says that the instance is wanted.
        let is_there = |dir: PathBuf| match purpose {
            OpenPurpose::Mount | OpenPurpose::Load => dir.is_dir(),
            OpenPurpose::Call => is_filled(&dir),
        };
        if !template.session_dirs().all(is_there) {
            return error;
        }
        let export = &self.config.name;
        tracing::warn!(%export, %error, "the export is forgotten; its handles are stale");
        self.parts.exports.remove(entry);
        self.parts.remove(self);
        self.memory_files().for_each(|file| self.parts.forget(&file));
        match self.parts.forget_instance(&self.own_path()) {
            Ok(()) => Error::Gone { export: self.config.name.clone() },
            Err(error) => error,
        }
    }

    /// The path without its token.
    pub(super) fn own_path(&self) -> String {
        format!("/{}", self.config.name)
    }

    /// Opens the sessions of all mounts; with `existing`, none is created.
    fn take_sessions(&self, existing: bool, taken: &mut Vec<SessionLease>) -> Result<()> {
        for (mount, session) in self.config.mounts.iter().zip(self.needed()?) {
            let NeededSession { file, database, read_only } = session;
            // What was in memory of another run is gone: it begins empty.
            let existing = existing && mount.store != StoreConfig::Memory;
            let access = SessionAccess { read_only: *read_only, existing };
            let open = || {
                if let Some(url) = database {
                    return self.open_in_database((file, url), mount, access);
                }
                let wanted = layer_options(&self.parts, &self.config, mount, file, access);
                // A failed opening may have created the file.
                let is_new = file.symlink_metadata().is_err();
                let opened = layers::open(&wanted, &self.parts.pool);
                let layers = opened.inspect_err(|_| {
                    if is_new {
                        self.parts.forget(file);
                    }
                })?;
                self.parts.hide_in(&layers);
                Ok(self.parts.begin(layers))
            };
            let check = |layers: &SessionLayers| {
                if layers.overlay.is_lost() {
                    return Err(Error::SessionLost { export: self.config.name.clone() });
                }
                check_same_settings(layers, &self.config, mount, *read_only)
            };
            taken.push(self.parts.sessions.acquire(file, open, check)?);
        }
        Ok(())
    }

    /// Ends the use of sessions, and closes those that no other export uses.
    pub(super) fn release(&self, leases: Vec<SessionLease>) {
        for lease in leases {
            if let Err(error) = self.parts.release(lease) {
                tracing::error!(%error, "a session was not closed cleanly");
            }
        }
    }

    /// Closes the export if it is idle; returns whether it was closed. Blocks.
    pub(super) fn close_idle(&self) -> bool {
        // Another thread opens or closes it.
        let Some(mut state) = self.state.try_lock() else { return false };
        if !state.leases.iter().all(|lease| self.may_close(&lease.layers)) {
            return false;
        }
        let Some(export) = self.entry().and_then(|entry| entry.take_idle()) else { return false };
        drop(export);
        tracing::debug!(export = %self.config.name, "idle: closed");
        *self.account.write() = ExportAccount::at_rest(Arc::clone(&self.config));
        self.note_closing();
        self.release(std::mem::take(&mut state.leases));
        true
    }

    /// Has its own sessions free what only makes later calls faster, once after its `last_use`, and
    /// again if work in the background has opened a connection. Blocks.
    pub(super) fn rest(&self, last_use: Instant) {
        // Another thread opens or closes it.
        let Some(state) = self.state.try_lock() else { return };
        let has_rested = *self.rested.lock() == Some(last_use);
        let mut is_all = true;
        for lease in &state.leases {
            let SessionLayers { overlay, worker, .. } = &*lease.layers;
            if lease.is_shared() || overlay.is_base_stuck() || overlay.is_writer_stuck() {
                // It may be otherwise the next time.
                is_all = false;
            } else if !has_rested || worker.has_idle_connection() {
                overlay.rest();
            }
        }
        if is_all {
            *self.rested.lock() = Some(last_use);
        }
    }

    /// Closes the export for good; returns it with the uses of its sessions, so that its drafts can
    /// be published before these are released.
    pub(super) fn retire(&self) -> (Option<Arc<Export>>, Vec<SessionLease>) {
        self.is_retired.store(true, Ordering::SeqCst);
        // An opening in progress may hang; it releases its sessions itself when it ends.
        let Some(mut state) = self.state.try_lock_for(RETIRE_WAIT) else {
            tracing::warn!(export = %self.config.name, "an opening does not end: its base hangs");
            return (None, Vec::new());
        };
        let export = self.entry().and_then(|entry| entry.take_open());
        (export, std::mem::take(&mut state.leases))
    }

    /// Whether a session has nothing to do and would be the same after it is opened again.
    fn may_close(&self, layers: &SessionLayers) -> bool {
        let overlay = &layers.overlay;
        // After a failed write, or if its file was removed, it stays open for reads.
        let is_broken = !layers.read_only && overlay.refuses_changes();
        if is_broken
            || overlay.is_base_stuck()
            || overlay.is_writer_stuck()
            || overlay.must_stay_open()
            || self.parts.is_in_use(&layers.session)
        {
            return false;
        }
        let pending = async {
            // Calls that hang in the base since a moment ago may have all readers.
            tokio::time::timeout(PENDING_WAIT, overlay.pending_copies()).await
        };
        let pending = self.parts.runtime.block_on(pending);
        matches!(pending, Ok(Ok(left)) if left.files == 0)
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }

    /// When a call last used the export, if it is open; `now` if one came since the last time.
    pub(super) fn last_use(&self, now: Instant) -> Option<Instant> {
        let entry = self.entry()?;
        entry.current()?;
        let mut last_use = self.last_use.lock();
        if entry.take_used() {
            *last_use = now;
        }
        Some(*last_use)
    }
}

/// A number that tells the drafts of an open export from those of another time.
pub(super) fn new_draft_epoch() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::Random(std::io::Error::other(error)))
}

/// Whether a directory has entries.
fn is_filled(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}
