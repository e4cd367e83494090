//! Finds the instances of templates that nothing has used for their template's `expire`, and the
//! sessions in memory that no call has used for `ephemeral_expire`.
//!
//! An instance is used while it is open. That is recorded in the registry before the call is
//! answered that opens it, and at intervals, so that after a crash no instance looks older by more
//! than [`save_period`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::on_demand::{ExportSource, SourceKind};
use super::shared_parts::SharedParts;
use crate::config::{StoreConfig, TemplateConfig};
use crate::delta::sqlite::PendingDeletion;

/// Instances that are removed each second.
const REMOVALS_PER_STEP: usize = 4;

/// Instances that are checked each second, to find these.
const CHECKS_PER_STEP: usize = 64;

/// Time after a start in which no instance is removed: its clients connect again. Less if `expire`
/// is.
const SETTLE: Duration = Duration::from_secs(5 * 60);

/// Time until the next check of an instance that could not be removed. Less if `expire` is.
const RECHECK_AFTER: Duration = Duration::from_secs(3600);

/// The shortest and the longest interval at which uses are recorded.
const SAVE_PERIODS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// The least time between two warnings that an instance cannot be removed.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// When an instance was used, on the registry's clock, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct InstanceUses {
    used_ms: AtomicU64,
    /// What the registry has, or more.
    saved_ms: AtomicU64,
    /// No attempt to remove it before this time.
    wait_until: Mutex<Option<Instant>>,
}

/// The state of the search.
pub(in crate::workspace) struct Expiry {
    /// When the registry was opened.
    begun: Mutex<Instant>,
    /// When uses were last recorded.
    saved: Mutex<Instant>,
    /// When a failure was last logged.
    warned: Mutex<Option<Instant>>,
    /// Instances that were removed.
    pub(in crate::workspace) removed: AtomicU64,
    /// Sessions that are to be deleted.
    pub(super) deletions: Mutex<Vec<PendingDeletion>>,
}

impl Default for Expiry {
    fn default() -> Self {
        let now = Instant::now();
        let (begun, saved) = (Mutex::new(now), Mutex::new(now));
        let (warned, removed, deletions) = (Mutex::default(), AtomicU64::new(0), Mutex::default());
        Self { begun, saved, warned, removed, deletions }
    }
}

impl Expiry {
    /// The registry is opened now.
    pub(super) fn begin(&self) {
        *self.begun.lock() = Instant::now();
    }

    /// Whether a failure is to be logged: a read-only directory may have thousands of instances.
    fn may_warn(&self) -> bool {
        let mut warned = self.warned.lock();
        let is_due = warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

impl InstanceUses {
    /// The registry has this use.
    pub(super) fn set_recorded(&self, used_ms: u64) {
        self.used_ms.fetch_max(used_ms, Ordering::SeqCst);
        self.saved_ms.fetch_max(used_ms, Ordering::SeqCst);
    }

    /// The instance was used then.
    pub(super) fn set_used(&self, used_ms: u64) {
        self.used_ms.fetch_max(used_ms, Ordering::SeqCst);
    }

    /// When it was last used.
    pub(super) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::SeqCst)
    }

    /// It is checked again later.
    pub(super) fn postpone(&self, expire: Duration) {
        *self.wait_until.lock() = Some(Instant::now() + RECHECK_AFTER.min(expire));
    }

    fn is_postponed(&self) -> bool {
        self.wait_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// How much older an instance may look after a crash.
fn save_period(expire: Option<Duration>) -> Duration {
    let (shortest, longest) = SAVE_PERIODS;
    expire.map_or(longest, |expire| (expire / 10).clamp(shortest, longest))
}

/// A duration in milliseconds.
pub(super) fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ExportSource {
    /// The template of an instance.
    pub(super) fn template(&self) -> Option<&Arc<TemplateConfig>> {
        match &self.kind {
            SourceKind::Written => None,
            SourceKind::Instance(template) => Some(template),
        }
    }

    /// Time until a closed instance may be removed, if nothing uses it and a server runs.
    pub(super) fn until_expired(&self, expire: Duration) -> Duration {
        let unused = self.parts.registry_ms().saturating_sub(self.uses.used_ms());
        let since_start = self.parts.expiry.begun.lock().elapsed();
        let settling = SETTLE.min(expire).saturating_sub(since_start);
        expire.saturating_sub(Duration::from_millis(unused)).max(settling)
    }

    fn is_open(&self) -> bool {
        self.entry().is_some_and(|entry| entry.current().is_some())
    }

    /// Records that the instance is used now, unless the registry has a use that is as good.
    pub(super) fn save_opening(&self) {
        let Some(expire) = self.template().and_then(|it| it.expire) else { return };
        let now = self.parts.registry_ms();
        let saved = self.uses.saved_ms.load(Ordering::SeqCst);
        if now.saturating_sub(saved) >= in_ms(save_period(Some(expire))) {
            self.parts.save_these(&[(self, now)]);
        }
    }

    /// The export is closed: it was used at the last call.
    pub(super) fn note_closing(&self) {
        if self.template().is_some() {
            let unused = in_ms(self.last_use.lock().elapsed());
            self.uses.set_used(self.parts.registry_ms().saturating_sub(unused));
        }
    }

    /// Removes the sessions in memory of a closed export whose last call was so long ago.
    fn expire_memory(&self, ephemeral: Duration) {
        let Some(state) = self.state.try_lock() else { return };
        let is_due = self.last_use.lock().elapsed() >= ephemeral;
        let is_unused = !self.is_open() && state.leases.is_empty() && self.opening.lock().is_none();
        let Some(entry) = self.entry().filter(|_| is_due && is_unused) else { return };
        let mounts = self.config.mounts.iter().enumerate();
        let in_memory = mounts.filter(|(_, mount)| mount.store == StoreConfig::Memory);
        let in_memory: Vec<usize> = in_memory.map(|(index, _)| index).collect();
        self.parts.exports.forget_mounts(&entry, &in_memory);
        self.memory_files().for_each(|file| self.parts.forget(&file));
        self.has_memory.store(false, Ordering::SeqCst);
        tracing::debug!(export = %self.config.name, "its changes in memory have expired");
    }
}

impl SharedParts {
    /// The registry's clock; 0 without a registry.
    pub(super) fn registry_ms(&self) -> u64 {
        self.with_registry(|registry| registry.now_ms()).unwrap_or(0)
    }

    /// Removes a few of the instances that have expired, and what was in memory. Called each
    /// second. Blocks.
    pub(super) fn expire(&self) {
        let expires = self.templates().iter().filter_map(|it| it.expire).min();
        if self.expiry.saved.lock().elapsed() >= save_period(expires) {
            self.save_uses();
        }
        let ephemeral = self.bounds.read().ephemeral;
        let sources = self.sources();
        for source in sources.iter().filter(|it| it.has_memory.load(Ordering::SeqCst)) {
            source.expire_memory(ephemeral);
        }
        if expires.is_some() {
            self.expire_instances(&sources);
        }
        self.delete_pending();
    }

    fn expire_instances(&self, sources: &[Arc<ExportSource>]) {
        let (now, since_start) = (self.registry_ms(), self.expiry.begun.lock().elapsed());
        let due = sources.iter().filter_map(|source| {
            let expire = source.template()?.expire?;
            let used = source.uses.used_ms();
            let is_due = since_start >= SETTLE.min(expire)
                && now.saturating_sub(used) >= in_ms(expire)
                && !source.is_open()
                && !source.uses.is_postponed();
            is_due.then_some((used, expire, source))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(used, ..)| *used);
        let mut removed = 0;
        for (_, expire, source) in due.into_iter().take(CHECKS_PER_STEP) {
            match source.remove_unused(expire) {
                Ok(is_removed) => removed += usize::from(is_removed),
                Err(error) => {
                    source.uses.postpone(expire);
                    if self.expiry.may_warn() {
                        let path = source.own_path();
                        tracing::warn!(?path, %error, "an instance that expired is not removed");
                    }
                }
            }
            if removed == REMOVALS_PER_STEP {
                return;
            }
        }
    }

    /// Records the uses of all instances, and how far the registry's clock is.
    pub(super) fn save_uses(&self) {
        let now = self.registry_ms();
        let sources = self.sources();
        let uses = sources.iter().filter(|source| source.template().is_some()).map(|source| {
            let used = if source.is_open() { now } else { source.uses.used_ms() };
            (&**source, used)
        });
        let is_new = |(source, used): &(&ExportSource, u64)| {
            *used > source.uses.saved_ms.load(Ordering::SeqCst)
        };
        self.save_these(&uses.filter(is_new).collect::<Vec<_>>());
        *self.expiry.saved.lock() = Instant::now();
    }

    fn save_these(&self, uses: &[(&ExportSource, u64)]) {
        let rows: Vec<_> = uses.iter().map(|(source, used)| (source.own_path(), *used)).collect();
        match self.with_registry(|registry| registry.save_uses(&rows)) {
            None => {}
            Some(Ok(())) => {
                for (source, used) in uses {
                    source.uses.saved_ms.fetch_max(*used, Ordering::SeqCst);
                }
            }
            Some(Err(error)) if self.expiry.may_warn() => {
                tracing::warn!(%error, "the registry does not record uses");
            }
            Some(Err(_)) => {}
        }
    }
}
