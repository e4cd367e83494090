//! The slices of a session on the pool's threads: a batch of changes with the maintenance that is
//! due, or one read; and the end of the session.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

use super::job::{Job, isolate};
use super::limits::MAX_REPLACED_OF_SESSION;
use super::pool::{PooledSession, SliceKind, SliceMark};
use super::queue::{BatchSize, NeedsSlice, SliceEnd};
use super::{WorkError, WorkerShared};
use crate::request_id;
use crate::run_queue::RunQueue;

/// A read slice takes one operation and leaves the next to other slices.
const ONE: BatchSize = BatchSize { ops: 1, bytes: 0 };

impl PooledSession for WorkerShared {
    fn run_slice(self: Arc<Self>, kind: SliceKind, woken: &RunQueue, mark: &SliceMark) -> bool {
        match kind {
            SliceKind::Write => self.write_slice(woken),
            SliceKind::Read => self.read_slice(woken, mark),
        }
    }

    /// The writer is watched by its activity, wherever it runs: this is for reads.
    fn note_stuck(self: Arc<Self>, kind: SliceKind, mark: &SliceMark, serial: u64) {
        if kind == SliceKind::Write {
            return;
        }
        let needs = {
            let mut replaced = self.replaced.lock();
            if !mark.set_stuck(serial) {
                return;
            }
            let may = *replaced < MAX_REPLACED_OF_SESSION && self.pool.take_replacement();
            *replaced += usize::from(may);
            let needs = self.reads.note_stuck(may);
            self.are_reads_stuck.store(self.reads.is_all_stuck(), Ordering::SeqCst);
            needs
        };
        self.schedule(SliceKind::Read, needs);
        if self.are_reads_stuck() {
            self.refuse_waiting_reads();
        }
        if self.reads.became_quiet() {
            self.wake_writer();
        }
    }

    fn tick(self: Arc<Self>, at: Instant) {
        let is_wanted = self.timer.lock().take_if(|set| *set == at).is_some();
        // Otherwise an earlier one was set after it.
        if is_wanted {
            self.wake_writer();
        }
    }
}

impl WorkerShared {
    /// Schedules a slice if a queue said so.
    pub(super) fn schedule(self: &Arc<Self>, kind: SliceKind, needs: NeedsSlice) {
        if needs.0 {
            self.pool.schedule(Arc::clone(self) as Arc<dyn PooledSession>, kind);
        }
    }

    /// Has a slice look what the writer has to do.
    pub(super) fn wake_writer(self: &Arc<Self>) {
        self.schedule(SliceKind::Write, self.writes.wake());
    }

    /// Has a slice call `run_due` of the engine at `due`.
    pub(super) fn wake_writer_at(self: &Arc<Self>, due: Instant) {
        if due <= Instant::now() {
            self.wake_writer();
            return;
        }
        let mut timer = self.timer.lock();
        if timer.is_none_or(|set| due < set) {
            *timer = Some(due);
            let session: Weak<Self> = Arc::downgrade(self);
            self.pool.set_timer(due, session);
        }
    }

    /// Refuses new work; the slices finish what is queued, and then the session.
    pub(super) fn close(self: &Arc<Self>) {
        self.reads.close();
        if self.writes.close() {
            self.wake_writer();
        }
    }

    /// Commits a batch, and does what is due. Ends the session once all its work is done.
    fn write_slice(self: &Arc<Self>, woken: &RunQueue) -> bool {
        let done = isolate("the writer", || self.write_batch(woken));
        if !matches!(done, Some(Ok(()))) {
            // The store panicked: its state is unknown.
            self.writes.abandon();
            self.reads.close();
        }
        let is_open = self.ended.borrow().is_none();
        if is_open && self.writes.is_drained() && self.reads.is_quiet() {
            self.finish();
        }
        self.writes.end_slice(false, false) == SliceEnd::Again
    }

    fn write_batch(self: &Arc<Self>, woken: &RunQueue) -> Result<(), WorkError> {
        let max = BatchSize { ops: self.limits.batch_ops, bytes: self.limits.batch_bytes };
        // An unsynced batch never admits an operation that needs an fsync: earlier callers do not
        // wait for it.
        let is_synced = |first: &Job| self.strict || first.needs_sync();
        let joins = |first: &Job, next: &Job| is_synced(first) || !next.needs_sync();
        let mut jobs = Vec::new();
        if let Some(mut cost) = self.writes.take(&mut jobs, max, joins) {
            let is_synced = jobs.first().is_some_and(is_synced);
            let mut more = |jobs: &mut Vec<Job>| {
                let joins = |next: &Job| is_synced || !next.needs_sync();
                self.writes.take_more(jobs, &mut cost, max, joins);
            };
            let mut engine = self.engine()?;
            // A line about a batch of one change is about its call.
            let request = match jobs.as_mut_slice() {
                [only] => only.request(),
                _ => None,
            };
            self.writer_activity.begin(self.watch.now(), request);
            self.watch.wake();
            request_id::within(request, || engine.work(&mut jobs, &mut more));
            self.writer_activity.end();
            drop(engine);
            self.executor.note_batch(cost.ops);
            self.writes.release(cost);
            woken.drain();
        }
        let due = self.engine()?.run_due();
        if let Some(due) = due {
            self.wake_writer_at(due);
        }
        Ok(())
    }

    /// Runs one read.
    fn read_slice(self: &Arc<Self>, woken: &RunQueue, mark: &SliceMark) -> bool {
        let mut taken = Vec::with_capacity(ONE.ops);
        if let Some(cost) = self.reads.take(&mut taken, ONE, |_, _| false) {
            for mut read in taken.drain(..) {
                let request = read.operation().request();
                mark.note_request(request);
                request_id::within(request, || {
                    let outcome = self.readers.read(read.operation());
                    isolate("answering a read", || read.answer(outcome));
                });
            }
            self.reads.release(cost);
            woken.drain();
            self.readers.open_missing();
        }
        match self.end_read_slice(mark) {
            SliceEnd::Again => true,
            SliceEnd::Done => false,
            SliceEnd::Quiet => {
                self.wake_writer();
                false
            }
        }
    }

    /// Ends a read slice; if it was stuck, another one may have run in its place.
    fn end_read_slice(&self, mark: &SliceMark) -> SliceEnd {
        if !mark.end() {
            return self.reads.end_slice(false, false);
        }
        // Waits for `note_stuck`, which may not have counted it yet.
        let mut replaced = self.replaced.lock();
        let was_replaced = *replaced > 0;
        if was_replaced {
            *replaced -= 1;
            self.pool.give_replacement_back();
        }
        let end = self.reads.end_slice(true, was_replaced);
        self.are_reads_stuck.store(self.reads.is_all_stuck(), Ordering::SeqCst);
        end
    }

    /// Fails all queued reads, because no slice can take them.
    fn refuse_waiting_reads(&self) {
        let mut reads = Vec::new();
        let cost = self.reads.take_all(&mut reads);
        for read in reads {
            isolate("answering a read", || read.answer(Err(WorkError::Stuck)));
        }
        self.reads.release(cost);
    }

    /// Closes the connections, the writer's last: only the last one to close checkpoints the whole
    /// WAL. Stuck reads are not waited for; each closes its own connection when it ends.
    fn finish(&self) {
        self.readers.close();
        let outcome = match self.engine() {
            Ok(mut engine) => isolate("closing the session", || engine.close()),
            Err(_) => None,
        };
        let outcome = outcome.unwrap_or_else(|| {
            let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            isolate("dropping the writer", || engine.drop_writer());
            Err(WorkError::Panicked)
        });
        self.ended.send_replace(Some(outcome));
    }
}
