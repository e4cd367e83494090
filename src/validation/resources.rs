//! Resources that the guards of all exports share, and the part of each export: memory for drafts,
//! permits for checks and programs, validator processes.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::child::{ValidatorCommand, ValidatorPool};
use super::fair::FairSemaphore;
use super::limits::GuardLimits;
use super::rules::Guards;
use super::validator::{Validator, ValidatorKind};
use super::violation::Violation;

/// Resources that the guards of all exports of a server share.
#[derive(Debug)]
pub struct GuardResources {
    pub(super) limits: GuardLimits,
    /// Starts validator processes; without it, no export may have a schema.
    command: Option<ValidatorCommand>,
    used: Mutex<Used>,
    checks: Arc<FairSemaphore>,
    programs: Arc<FairSemaphore>,
    /// The validator processes, while an export with a schema is served.
    pool: Mutex<Weak<ValidatorPool>>,
}

/// Use of the shared drafts and bytes.
#[derive(Debug, Default)]
struct Used {
    drafts: usize,
    bytes: u64,
    /// Number of exports with guards.
    exports: usize,
    /// Number given to the last export.
    last: u64,
}

/// The part of one export.
#[derive(Debug)]
pub struct ExportResources {
    pub(super) all: Arc<GuardResources>,
    number: u64,
    has_guards: bool,
    held: Mutex<DraftUsage>,
    pool: Option<Arc<ValidatorPool>>,
}

/// Drafts and bytes that an export holds.
#[derive(Debug, Default, Clone, Copy)]
struct DraftUsage {
    drafts: usize,
    bytes: u64,
}

/// Reservation of one draft, released on drop.
#[derive(Debug)]
pub(super) struct DraftRoom {
    export: Arc<ExportResources>,
    bytes: u64,
}

/// A guard has a schema, but no command starts validator processes.
#[derive(Debug, thiserror::Error)]
#[error("exports with a JSON Schema need the path of an `acetate` program (ServedExports::new)")]
pub struct NoValidatorCommand;

/// Why content is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAccepted {
    /// The content is invalid, or cannot be checked within the limits.
    Refused(Violation),
    /// No permit was free in time: the caller may retry.
    Busy,
}

impl From<Violation> for NotAccepted {
    fn from(violation: Violation) -> Self {
        Self::Refused(violation)
    }
}

impl GuardResources {
    /// Resources with these limits. `command` starts validator processes.
    pub fn new(limits: GuardLimits, command: Option<ValidatorCommand>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            command,
            used: Mutex::default(),
            checks: FairSemaphore::new(limits.checks),
            programs: FairSemaphore::new(limits.programs),
            pool: Mutex::default(),
        })
    }

    /// The part of an export with these guards.
    ///
    /// # Errors
    /// A guard has a schema, but no command starts validator processes.
    pub fn export(
        self: &Arc<Self>,
        guards: &Guards,
    ) -> Result<Arc<ExportResources>, NoValidatorCommand> {
        let pool = guards.has_schema().then(|| self.pool()).transpose()?;
        let has_guards = !guards.is_empty();
        let mut used = lock(&self.used);
        used.exports += usize::from(has_guards);
        used.last += 1;
        let (all, number) = (Arc::clone(self), used.last);
        Ok(Arc::new(ExportResources { all, number, has_guards, held: Mutex::default(), pool }))
    }

    fn pool(&self) -> Result<Arc<ValidatorPool>, NoValidatorCommand> {
        let mut pool = lock(&self.pool);
        if let Some(pool) = pool.upgrade() {
            return Ok(pool);
        }
        let command = self.command.clone().ok_or(NoValidatorCommand)?;
        let made = Arc::new(ValidatorPool::new(command, self.limits.child));
        *pool = Arc::downgrade(&made);
        Ok(made)
    }

    /// Changes what an export holds; returns whether the limits allow it.
    ///
    /// Each export has `own_drafts` and `own_bytes` reserved. Beyond that it uses the shared
    /// limits; with several exports, at most half of them.
    fn change(&self, held: &mut DraftUsage, wanted: DraftUsage) -> bool {
        let limits = &self.limits;
        let beyond = |held: DraftUsage| DraftUsage {
            drafts: held.drafts.saturating_sub(limits.own_drafts),
            bytes: held.bytes.saturating_sub(limits.own_bytes),
        };
        let (before, after) = (beyond(*held), beyond(wanted));
        let mut used = lock(&self.used);
        let share = if used.exports > 1 { 2 } else { 1 };
        let drafts = used.drafts - before.drafts + after.drafts;
        let bytes = used.bytes - before.bytes + after.bytes;
        let is_more = |before, after| after > before;
        if is_more(before.drafts as u64, after.drafts as u64)
            && (drafts > limits.drafts || after.drafts > limits.drafts / share)
            || is_more(before.bytes, after.bytes)
                && (bytes > limits.bytes || after.bytes > limits.bytes / share as u64)
        {
            return false;
        }
        (used.drafts, used.bytes) = (drafts, bytes);
        *held = wanted;
        true
    }
}

impl ExportResources {
    /// Reserves a draft of `bytes`; `None` if the limits do not allow it.
    pub(super) fn draft(self: &Arc<Self>, bytes: u64) -> Option<DraftRoom> {
        let mut held = lock(&self.held);
        let wanted = DraftUsage { drafts: held.drafts + 1, bytes: held.bytes + bytes };
        let fits = self.all.change(&mut held, wanted);
        fits.then(|| DraftRoom { export: Arc::clone(self), bytes })
    }

    /// Upper bound of drafts in the export.
    pub(super) fn most_drafts(&self) -> usize {
        self.all.limits.drafts + self.all.limits.own_drafts
    }

    /// Checks content, or whole lines of it, for the file at `path`.
    ///
    /// # Errors
    /// The content is invalid or cannot be checked within the limits, or no permit was free in
    /// time.
    pub async fn check(
        &self,
        validator: &Validator,
        path: &[u8],
        content: &Bytes,
    ) -> Result<(), NotAccepted> {
        let wait = self.all.limits.wait;
        let turns = match validator.kind() {
            ValidatorKind::Program(_) => &self.all.programs,
            ValidatorKind::Json(..) => &self.all.checks,
        };
        let is_alone = lock(&self.all.used).exports <= 1;
        let turn = turns.acquire(self.number, is_alone, wait).await;
        let _lock = turn.ok_or(NotAccepted::Busy)?;
        match validator.kind() {
            ValidatorKind::Program(program) => program.check(path, content).await?,
            ValidatorKind::Json(form, Some(schema)) => {
                let pool = self.pool.as_ref().ok_or_else(|| Violation::new(NoValidatorCommand))?;
                pool.check(schema, *form, content).await?;
            }
            ValidatorKind::Json(form, None) => {
                // In this process: `json::check` is linear in time and memory.
                let (form, content) = (*form, content.clone());
                let checked = tokio::task::spawn_blocking(move || {
                    form.check_all(&content, super::json::check)
                });
                checked.await.unwrap_or_else(|_| Err(Violation::new("the validator failed")))?;
            }
        }
        Ok(())
    }
}

impl Drop for ExportResources {
    fn drop(&mut self) {
        lock(&self.all.used).exports -= usize::from(self.has_guards);
    }
}

impl DraftRoom {
    /// Resizes the reservation to `bytes`; returns whether the limits allow it.
    pub(super) fn resize(&mut self, bytes: u64) -> bool {
        let mut held = lock(&self.export.held);
        let wanted = DraftUsage { bytes: held.bytes - self.bytes + bytes, ..*held };
        let fits = self.export.all.change(&mut held, wanted);
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Drop for DraftRoom {
    fn drop(&mut self) {
        let mut held = lock(&self.export.held);
        let wanted = DraftUsage { drafts: held.drafts - 1, bytes: held.bytes - self.bytes };
        self.export.all.change(&mut held, wanted);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
