//! Writing on a caller's thread: a change at once where it comes alone; where several come, the
//! first of their callers lets others run, and then commits for all whose changes are there.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::task;

use crate::vfs::WriteVerifier;

use super::job::{Job, WriteOperation};
use super::limits::{BATCH_BYTES, CALLER_BATCH_OPS, CALLER_BATCHES, LEADER_YIELDS, LONE_CHANGES};
use super::queue::{Closed, Cost, Led, TakenOver};
use super::writing::Writing;
use super::{Committed, Shared, WorkError};

/// Whether others' changes are about to come, as far as the last ones tell. One commit for several
/// is cheaper than one for each.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// Changes that have to come alone until none are expected.
    doubts: AtomicU8,
}

impl Company {
    /// Whether it is worth waiting for them.
    fn is_expected(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > 0
    }

    /// Notes how many changes or syncs came together.
    pub fn note(&self, changes: usize) {
        let doubts = match changes {
            0 => return,
            1 => self.doubts.load(Ordering::Relaxed).saturating_sub(1),
            _ => LONE_CHANGES,
        };
        self.doubts.store(doubts, Ordering::Relaxed);
    }
}

impl Shared {
    /// Commits one change on the caller's thread, if nobody else writes or waits to; a durable
    /// one, if there is not much else to be synced with it.
    pub fn write_here(
        &self,
        write: &mut dyn WriteOperation,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        let durable = durable || self.strict;
        self.as_writer(|writing| {
            let is_light = !durable || writing.is_sync_light();
            is_light.then(|| writing.write(&mut [write], durable))
        })
    }

    /// Syncs on the caller's thread, under the same conditions.
    pub fn sync_here(&self) -> Option<Result<WriteVerifier, WorkError>> {
        self.as_writer(|writing| {
            let is_light = writing.is_sync_light();
            is_light.then(|| writing.sync().map(|()| self.status.verifier()))
        })
    }

    /// Has a change made that its caller cannot make at once: by the writer thread, or a light
    /// one by whoever leads.
    ///
    /// If the future is dropped, the change is in the queue, and will be made, or is not.
    pub async fn write_later(&self, bytes: usize, job: Job) -> Result<(), Closed> {
        if !self.callers_write || self.strict || !job.is_light() {
            return self.writes.push(bytes, job).await;
        }
        if let Some(led) = self.writes.push_led(bytes, job).await? {
            for _ in 0..LEADER_YIELDS {
                task::yield_now().await;
            }
            self.lead(led);
        }
        Ok(())
    }

    /// Makes the light changes that have come, for all of their callers.
    fn lead(&self, led: Led<'_, Job>) {
        if self.thread_waits.load(Ordering::Relaxed) {
            return;
        }
        let Some(taken_over) = led.take_over() else { return };
        // Where somebody holds it, the thread makes them next.
        let Ok(mut writing) = self.writing.try_lock() else { return };
        let changes = self.work_off(&taken_over, &mut writing);
        self.company.note(changes + usize::from(taken_over.is_waited_for()));
        self.leave(writing);
    }

    /// Does a caller's `work` on its own thread, if nobody else writes or waits to.
    fn as_writer<T>(&self, work: impl FnOnce(&mut Writing) -> Option<T>) -> Option<T> {
        if !self.callers_write
            || self.company.is_expected()
            || self.thread_waits.load(Ordering::Relaxed)
        {
            return None;
        }
        let taken_over = self.writes.take_over()?;
        // If the store panicked under another holder, the writer thread finds out.
        let mut writing = self.writing.try_lock().ok()?;
        let outcome = work(&mut writing);
        if outcome.is_some() {
            let others = if self.strict { 0 } else { self.work_off(&taken_over, &mut writing) };
            self.company.note(1 + others + usize::from(taken_over.is_waited_for()));
        }
        self.leave(writing);
        outcome
    }

    /// Makes the light changes that came, up to the first of another kind, and as many as one
    /// caller makes; how many they were. To wake the writer thread for them takes longer.
    fn work_off(&self, taken_over: &TakenOver<'_, Job>, writing: &mut Writing) -> usize {
        let mut jobs = Vec::new();
        let mut changes = 0;
        for _ in 0..CALLER_BATCHES {
            let max = Cost { ops: CALLER_BATCH_OPS, bytes: BATCH_BYTES };
            let Some(cost) = taken_over.take(&mut jobs, max, Job::is_light) else { break };
            writing.work(&mut jobs);
            changes += cost.ops;
            self.writes.release(cost);
        }
        changes
    }

    /// Lets go of the state of writing, and has the writer thread do what it left to do.
    fn leave(&self, writing: MutexGuard<'_, Writing>) {
        let wants_thread = writing.wants_thread();
        drop(writing);
        if wants_thread {
            self.writes.nudge();
        }
    }
}
