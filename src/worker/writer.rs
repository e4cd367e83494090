//! The writer thread: takes what is waiting, commits it as one batch, then answers.
//!
//! Which errors end the session's writing: damaged data anywhere, and an I/O error of a commit,
//! abort or sync, because nobody knows then what the file holds. Any other error is its batch's
//! own: it answers all of that batch, and the next one is tried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::delta::{StoreError, Writer};
use crate::vfs::WriteVerifier;

use super::job::{Job, Reply, WriteOperation, isolate};
use super::queue::{Cost, Taken};
use super::{Committed, Limits, Shared, WorkError};

type Batch = Vec<Box<dyn WriteOperation>>;

/// The state of the writer thread.
pub(super) struct WriterThread {
    /// `None` where the session cannot be written (any more).
    writer: Option<Box<dyn Writer>>,
    shared: Arc<Shared>,
    limits: Limits,
    strict: bool,
    /// Whether all that was ever committed is known to be synced; not at the start, because an
    /// earlier process may have been killed before its sync.
    clean: bool,
    /// When the oldest commit of this run that is not synced must be.
    sync_due: Option<Instant>,
}

impl WriterThread {
    /// The state before the first batch; without a writer everything answers ReadOnly.
    pub fn new(
        writer: Option<Box<dyn Writer>>,
        shared: Arc<Shared>,
        limits: Limits,
        strict: bool,
    ) -> Self {
        Self { writer, shared, limits, strict, clean: false, sync_due: None }
    }

    /// Serves the queue until it is closed and empty, then ends the readers and the session.
    pub fn run(mut self, readers: Vec<JoinHandle<()>>) -> Result<(), WorkError> {
        let shared = Arc::clone(&self.shared);
        let _abandon = AbandonOnDrop(&shared);
        let read_only_from_the_start = self.writer.is_none();
        let max = Cost { ops: self.limits.batch_ops, bytes: self.limits.batch_bytes };
        // What needs no sync does not wait for one that stands behind it in the queue.
        let strict = self.strict;
        let joins = |first: &Job, next: &Job| strict || first.needs_sync() || !next.needs_sync();
        let mut jobs = Vec::new();
        loop {
            if self.sync_due.is_some_and(|due| due <= Instant::now()) {
                // A failure is logged and remembered; whoever asks next hears of it.
                let _ = self.sync();
            }
            match shared.writes.take(&mut jobs, max, self.sync_due, joins) {
                Taken::Items(cost) => {
                    self.work(&mut jobs);
                    shared.writes.release(cost);
                }
                Taken::TimedOut => {}
                Taken::Closed => break,
            }
        }
        for reader in readers {
            // The last connection to close is ours: only then is the whole log folded in.
            drop(reader.join());
        }
        if read_only_from_the_start { Ok(()) } else { self.close() }
    }

    /// Runs one batch and answers all of it.
    fn work(&mut self, jobs: &mut Vec<Job>) {
        let durable = self.strict || jobs.iter().any(Job::needs_sync);
        let mut batch = Batch::with_capacity(jobs.len());
        let mut syncs: Vec<Reply<WriteVerifier>> = Vec::new();
        for job in jobs.drain(..) {
            match job {
                Job::Write { operation, .. } => batch.push(operation),
                Job::Sync(reply) => syncs.push(reply),
            }
        }
        let synced = !batch.is_empty() && self.write(batch, durable) && durable;
        if !syncs.is_empty() {
            // A batch that failed for want of space says nothing about what stood before it.
            let outcome = if synced { Ok(()) } else { self.sync() };
            let answer = outcome.map(|()| self.shared.verifier());
            for reply in syncs {
                drop(reply.send(answer.clone()));
            }
        }
    }

    /// Commits the batch, runs its hooks, answers; whether it is committed.
    fn write(&mut self, mut batch: Batch, durable: bool) -> bool {
        let outcome = self.commit(&mut batch, durable);
        if outcome.is_ok() {
            for operation in &mut batch {
                isolate("a hook after a commit", || operation.after_commit());
            }
        }
        if self.shared.commits.version().is_none() {
            self.shared.commits.step();
        }
        let committed = outcome.is_ok();
        let verifier = self.shared.verifier();
        let answer = outcome.map(|()| Committed { value: (), durable, verifier });
        for operation in batch {
            isolate("answering a write", || operation.answer(answer.clone()));
        }
        committed
    }

    /// Runs the operations between begin and commit. After an error nothing of them is kept.
    fn commit(&mut self, batch: &mut Batch, durable: bool) -> Result<(), WorkError> {
        let writer = self.writer.as_mut().ok_or(WorkError::ReadOnly)?;
        if let Err(error) = writer.begin(durable) {
            return Err(self.failed("begin", error, false));
        }
        let kept = match run_operations(writer.as_mut(), batch) {
            Ok(kept) => kept,
            Err(error) => {
                let aborted = writer.abort();
                let error = self.failed("savepoint", error, false);
                return Err(match aborted {
                    Ok(()) => error,
                    Err(cause) => self.failed("abort", cause, true),
                });
            }
        };
        if !kept {
            // Nothing to keep, so nothing to write: the file stays as it is.
            return match writer.abort() {
                Ok(()) if durable => self.sync(),
                Ok(()) => Ok(()),
                Err(error) => Err(self.failed("abort", error, true)),
            };
        }
        self.shared.commits.step();
        if let Err(error) = writer.commit() {
            return Err(self.failed("commit", error, true));
        }
        self.clean = durable;
        self.sync_due = if durable {
            None
        } else {
            self.sync_due.or_else(|| Instant::now().checked_add(self.limits.sync_interval))
        };
        Ok(())
    }

    /// Syncs everything that was committed before.
    fn sync(&mut self) -> Result<(), WorkError> {
        let writer = self.writer.as_mut().ok_or(WorkError::ReadOnly)?;
        match writer.sync() {
            Ok(()) => {
                self.clean = true;
                self.sync_due = None;
                Ok(())
            }
            Err(error) => {
                // Where writing goes on, the timer tries again.
                let retry = Instant::now().checked_add(self.limits.sync_interval);
                self.sync_due = self.sync_due.and(retry);
                Err(self.failed("sync", error, true))
            }
        }
    }

    /// Notes a failure of the store; `in_doubt` says that an I/O error of this step leaves open
    /// what the file holds. Returns the answer of all that it concerns.
    fn failed(&mut self, step: &'static str, error: StoreError, in_doubt: bool) -> WorkError {
        let fatal = match &error {
            StoreError::Corrupt(_) => true,
            StoreError::Io(_) => in_doubt,
            StoreError::Full(_) | StoreError::Busy(_) | StoreError::ReadOnly(_) => false,
        };
        if !fatal {
            tracing::warn!(step, %error, "the session did not take a change");
        } else if let Some(mut writer) = self.writer.take() {
            tracing::error!(step, %error, "the session is read-only from now on");
            if !self.clean {
                // What was answered before and not synced may be gone.
                self.shared.epoch.store(writer.advance_epoch(), Ordering::Release);
            }
            self.sync_due = None;
            self.shared.read_only.store(true, Ordering::Release);
            // Dropped without close(): the session does not count as cleanly closed.
        }
        WorkError::Store(error)
    }

    /// Syncs and closes the session.
    fn close(mut self) -> Result<(), WorkError> {
        self.sync()?;
        let writer = self.writer.as_mut().ok_or(WorkError::ReadOnly)?;
        writer.close().inspect_err(|error| tracing::error!(%error, "cannot close the session"))?;
        Ok(())
    }
}

/// Runs each operation in a savepoint of its own; whether the changes of any are kept.
fn run_operations(writer: &mut dyn Writer, batch: &mut Batch) -> Result<bool, StoreError> {
    let mut any_kept = false;
    for operation in batch {
        writer.savepoint()?;
        // A panic counts as "not kept"; the operation without an answer answers Panicked.
        let kept = isolate("a write operation", || operation.run(writer.txn())).unwrap_or(false);
        if kept {
            writer.release()?;
        } else {
            writer.roll_back()?;
        }
        any_kept |= kept;
    }
    Ok(any_kept)
}

/// However the writer thread ends, nobody waits for it in vain.
struct AbandonOnDrop<'a>(&'a Shared);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.writes.abandon();
        self.0.reads.close();
    }
}
