//! The writer thread: takes what is waiting, commits it as one batch, with what comes while it
//! runs, then answers; and does what is due between batches.

use std::sync::Arc;

use super::job::Job;
use super::queue::{BatchSize, TakeOutcome};
use super::{Limits, WorkError, WorkerShared, threads};

/// Serves the queue until it is closed and empty, then ends the readers and the session.
pub(super) fn run(
    shared: &Arc<WorkerShared>,
    limits: Limits,
    strict: bool,
) -> Result<(), WorkError> {
    threads::join();
    let _abandon = AbandonOnDrop(shared);
    let read_only_from_the_start = shared.writing()?.is_read_only();
    let max = BatchSize { ops: limits.batch_ops, bytes: limits.batch_bytes };
    // What needs no sync does not wait for one that stands behind it in the queue.
    let is_synced = |first: &Job| strict || first.needs_sync();
    let joins = |first: &Job, next: &Job| is_synced(first) || !next.needs_sync();
    let mut jobs = Vec::new();
    loop {
        let due = shared.writing()?.run_due();
        match shared.writes.take(&mut jobs, max, due, joins) {
            TakeOutcome::Items(mut cost) => {
                let is_synced = jobs.first().is_some_and(is_synced);
                let mut more = |jobs: &mut Vec<Job>| {
                    let joins = |next: &Job| is_synced || !next.needs_sync();
                    shared.writes.take_more(jobs, &mut cost, max, joins);
                };
                let mut writing = shared.writing()?;
                shared.writer_activity.begin(shared.watch.now());
                shared.watch.wake();
                writing.work(&mut jobs, &mut more);
                shared.end_writing();
                drop(writing);
                shared.write_contention.note(cost.ops);
                shared.writes.release(cost);
            }
            TakeOutcome::TimedOut => {}
            TakeOutcome::Closed => break,
        }
    }
    // The last connection to close is ours: only then is the whole log folded in. What is stuck
    // is not waited for.
    shared.readers.wait();
    shared.inline_readers.close();
    if read_only_from_the_start { Ok(()) } else { shared.writing()?.close() }
}

/// However the writer thread ends, nobody waits for it in vain.
struct AbandonOnDrop<'a>(&'a WorkerShared);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.writes.abandon();
        self.0.reads.close();
    }
}
