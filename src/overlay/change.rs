//! Runs a change on the worker: quota, caches, access times, and what follows the commit.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::counters::COUNTERS;
use crate::delta::{UnsavedContent, UsageDelta, WriteTxn};
use crate::vfs::{Caller, FsError, Outcome};
use crate::worker::{Committed, Cost, OpResult};

use super::Overlay;
use super::edit::Edit;
use super::error::{from_work, is_in_doubt};
use super::hanging::reject_if_refused;
use super::limits::MAX_PUT_OFF;
use super::quota::QuotaReservation;

/// Size of a change in the writer's queue, besides its data, in bytes.
const CHANGE_BYTES: usize = 512;

/// What a change needs from the worker.
#[derive(Clone, Copy)]
struct ChangeNeeds {
    cost: Cost,
    /// Memory of the change in the writer's queue, in bytes.
    bytes: usize,
    /// Whether it is synced.
    durable: bool,
    /// Whether it may be put off, to save content first.
    saves_first: bool,
}

/// The end of a change.
enum Changed<T> {
    /// It was made, or failed.
    Done(std::result::Result<T, FsError>),
    /// Nothing changed, and this content is to be saved first.
    PutOff(UnsavedContent),
}

impl Overlay {
    /// Runs `f` as one change. The result says whether it was synced, and has the verifier of its
    /// commit. `data_bytes` is the memory of the data that `f` holds while it waits for the writer.
    ///
    /// `f` runs again after the store saved content for a checkpoint. A mutex has it, because the
    /// worker owns the closure of each attempt; no two attempts run at once, so none waits.
    ///
    /// # Errors
    /// [`FsError::TryLater`] while the writer is stuck in the base; a quota is exceeded, or the
    /// session cannot be read or written. An error of `f` is in its outcome instead.
    pub(super) async fn change<T: Send + 'static, C: Default + Send + 'static>(
        &self,
        caller: &Caller,
        cost: Cost,
        data_bytes: usize,
        durable: bool,
        f: impl FnMut(&mut Edit<'_>) -> Outcome<T, C> + Send + 'static,
    ) -> Result<Committed<Outcome<T, C>>, FsError> {
        self.check_writer()?;
        self.count_if_limited().await?;
        let bytes = CHANGE_BYTES + data_bytes;
        let mut needs = ChangeNeeds { cost, bytes, durable, saves_first: true };
        let f = Arc::new(Mutex::new(f));
        let mut put_off = 0;
        loop {
            let Committed { value, durable, verifier } =
                self.try_change(caller, needs, Arc::clone(&f)).await?;
            match value {
                Changed::Done(value) => return Ok(Committed { value: value?, durable, verifier }),
                Changed::PutOff(content) => {
                    put_off += 1;
                    let is_saved = self.save_content(content).await;
                    needs.saves_first = is_saved && put_off < MAX_PUT_OFF;
                }
            }
        }
    }

    async fn try_change<T: Send + 'static, C: Default + Send + 'static>(
        &self,
        caller: &Caller,
        needs: ChangeNeeds,
        f: Arc<Mutex<impl FnMut(&mut Edit<'_>) -> Outcome<T, C> + Send + 'static>>,
    ) -> Result<Committed<Changed<Outcome<T, C>>>, FsError> {
        let (core, scope) = (self.core.clone(), self.scope.clone());
        let memberships = self.memberships.clone();
        let (caller, is_once) = (caller.clone(), caller.call.is_some());
        let job = move |txn: &mut dyn WriteTxn| {
            let now = (core.clock)();
            let mut trial = core.writer_memo.begin();
            txn.bound_audit(core.quota.is_limited(&memberships));
            let mut edit = Edit::new(txn, &core, &scope, &caller, now);
            edit.saves_first = needs.saves_first;
            let done = reject_if_refused(|| (f.lock())(&mut edit));
            let mut outcome = done.unwrap_or(FsError::TryLater.into());
            if let Some(content) = edit.unsaved {
                let value = Changed::PutOff(content);
                return OpResult { value, commit: false, after_commit: None };
            }
            // Only with successful changes: a failed one must not change anything.
            let mut atimes = None;
            if outcome.result.is_ok() {
                match core.atimes.write(edit.txn) {
                    Ok(written) => atimes = Some(written),
                    Err(error) => outcome = error.into_fs().into(),
                }
            }
            let (touched, removed) = (edit.invalidations, edit.removed);
            let wakes_copies = edit.wakes_copies;
            let copy_ups = u64::from(edit.copied.is_some());
            let wakes_background = wakes_copies || !removed.is_empty();
            let is_unlimited = edit.is_unlimited;
            let is_made = outcome.result.is_ok();
            let growth = if is_made { txn.growth() } else { UsageDelta::default() };
            let memberships = (!is_unlimited).then_some(&*memberships);
            let (value, charge) = match core.quota.charge(growth, memberships) {
                Ok(charge) => (Ok(outcome), charge),
                Err(error) => (Err(error), None),
            };
            let keep = is_made && value.is_ok();
            trial.made(!touched.is_empty());
            let core = core.clone();
            let after_commit = move || {
                QuotaReservation::commit(charge);
                COUNTERS.copy_ups.add(copy_ups);
                core.caches.forget(&touched);
                trial.committed();
                core.removed.add(removed);
                core.checkpoints.note_change();
                if wakes_copies {
                    core.copies.begin();
                }
                if wakes_background {
                    core.copies.background.wake();
                }
                if let Some(atimes) = atimes {
                    atimes.committed();
                }
            };
            let value = Changed::Done(value);
            OpResult { value, commit: keep, after_commit: Some(Box::new(after_commit)) }
        };
        let work = self.worker.write(needs.cost, needs.bytes, needs.durable, job);
        match work.await {
            // The client repeats the call over its next connection, to the server that has the
            // session, which recognises it.
            Err(error) if is_in_doubt(&error) && is_once => std::future::pending().await,
            work => work.map_err(|error| from_work(&error)),
        }
    }
}
