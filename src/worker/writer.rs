//! The writer thread: commits waiting jobs as one batch, including jobs that arrive while it runs,
//! then replies. Between batches it runs due maintenance.

use std::sync::Arc;

use super::job::Job;
use super::queue::{BatchSize, TakeOutcome};
use super::{Limits, WorkError, WorkerShared};
use crate::request_id;
use crate::run_queue::RunQueue;

/// Serves the queue until it is closed and empty, then stops the readers and closes the session.
pub(super) fn run(
    shared: &Arc<WorkerShared>,
    limits: Limits,
    strict: bool,
) -> Result<(), WorkError> {
    let woken = RunQueue::open();
    let _abandon = AbandonOnDrop(shared);
    let max = BatchSize { ops: limits.batch_ops, bytes: limits.batch_bytes };
    // An unsynced batch never admits an operation that needs an fsync: earlier callers do not wait
    // for it.
    let is_synced = |first: &Job| strict || first.needs_sync();
    let joins = |first: &Job, next: &Job| is_synced(first) || !next.needs_sync();
    let mut jobs = Vec::new();
    loop {
        woken.drain();
        let due = shared.engine()?.run_due();
        match shared.writes.take(&mut jobs, max, due, joins) {
            TakeOutcome::Items(mut cost) => {
                let is_synced = jobs.first().is_some_and(is_synced);
                let mut more = |jobs: &mut Vec<Job>| {
                    let joins = |next: &Job| is_synced || !next.needs_sync();
                    shared.writes.take_more(jobs, &mut cost, max, joins);
                };
                let mut engine = shared.engine()?;
                // A line about a batch of one change is about its call.
                let request = match jobs.as_mut_slice() {
                    [only] => only.request(),
                    _ => None,
                };
                shared.writer_activity.begin(shared.watch.now(), request);
                shared.watch.wake();
                request_id::within(request, || engine.work(&mut jobs, &mut more));
                shared.end_writing();
                drop(engine);
                shared.executor.note_batch(cost.ops);
                shared.writes.release(cost);
            }
            TakeOutcome::TimedOut => {}
            TakeOutcome::Closed => break,
        }
    }
    woken.drain();
    // Only the last connection to close checkpoints the whole WAL, so this one closes last. Stuck
    // readers are not waited for.
    shared.readers.wait();
    shared.executor.close();
    shared.engine()?.close()
}

/// Closes both queues and fails waiting writes, however the writer thread ends.
struct AbandonOnDrop<'a>(&'a WorkerShared);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.writes.abandon();
        self.0.reads.close();
    }
}
