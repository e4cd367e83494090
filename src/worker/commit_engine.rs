//! The commit engine: batches, commits, syncs, and which errors end writing.
//!
//! The thread that holds it is the one writer: the writer thread, or for some short changes a
//! caller's thread.
//!
//! Which errors poison the session (`delta::Poison`) and so end its writing: damaged data anywhere,
//! and an I/O error of a commit, abort or sync, because it leaves open what the file holds. The
//! store may set the poison itself. Any other error is its batch's own: it answers all of that
//! batch, and the next batch is tried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::delta::{Compacted, StoreError, Writer};

use super::batch::{Alone, Batch, Jobs, More};
use super::job::{Job, UsageListener, WriteOperation, isolate};
use super::limits::{GROWING_BATCH_OPS, WARY_BATCHES};
use super::{Committed, Limits, WorkError, WorkerStatus};

/// The state of writing.
pub(super) struct CommitEngine {
    /// `None` where the session was opened to be read, where its poison was set, and once it is
    /// closed.
    writer: Option<Box<dyn Writer>>,
    status: Arc<WorkerStatus>,
    limits: Limits,
    strict: bool,
    /// Whether all that was ever committed is known to be synced; not at the start, because an
    /// earlier process may have been killed before its sync.
    clean: bool,
    /// When the oldest commit of this run that is not synced must be.
    sync_due: Option<Instant>,
    /// When the writer thread looks here again, if nothing wakes it before.
    looked_at_again: Option<Instant>,
    /// Whether the next batch has begun already: [`CommitEngine::try_write`].
    has_begun: bool,
    /// Batches whose operations get savepoints, because one had to be undone of late.
    wary: u8,
}

impl CommitEngine {
    /// The state before the first batch; without a writer everything answers ReadOnly.
    pub fn new(
        writer: Option<Box<dyn Writer>>,
        status: Arc<WorkerStatus>,
        limits: Limits,
        strict: bool,
    ) -> Self {
        Self {
            writer,
            status,
            limits,
            strict,
            clean: false,
            sync_due: None,
            looked_at_again: None,
            has_begun: false,
            wary: 0,
        }
    }

    /// Whether there is no writer (any more).
    pub fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    /// Whether the writer thread has to be woken for [`CommitEngine::run_due`]: at once, or earlier
    /// than it is going to wake.
    pub fn wants_thread(&self) -> bool {
        self.due().is_some_and(|due| self.looked_at_again.is_none_or(|again| due < again))
    }

    /// When something is due between batches.
    fn due(&self) -> Option<Instant> {
        let maintenance = self.writer.as_ref().and_then(|writer| writer.maintenance_at());
        self.sync_due.into_iter().chain(maintenance).min()
    }

    /// Whether there is nothing to sync.
    pub fn is_synced(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.unsynced_bytes() == 0)
    }

    /// As [`CommitEngine::write`], for one operation that is not durable; `None`, and the operation
    /// has not run, if it would wait for a lock or a disk's sync.
    pub fn try_write(&mut self, alone: &mut Alone<'_>) -> Option<Result<Committed<()>, WorkError>> {
        match self.writer.as_mut()?.try_begin() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(self.failed("begin", error, false))),
        }
        self.has_begun = true;
        Some(self.write(alone, false))
    }

    /// Does what is due between batches: the timer's sync, the store's maintenance. Returns when to
    /// call it again at the latest, if nothing else happens.
    pub fn run_due(&mut self) -> Option<Instant> {
        if self.sync_due.is_some_and(|due| due <= Instant::now()) {
            // A failure is logged and remembered; whoever asks next hears of it.
            let _ = self.sync();
        }
        if let Some(writer) = self.writer.as_mut().filter(|writer| writer.wants_maintenance()) {
            writer.maintenance();
        }
        self.looked_at_again = self.due();
        self.looked_at_again
    }

    /// Runs one batch and answers all of it. `more` adds those jobs that came meanwhile and may
    /// join: to a batch that is synced, or of several
    /// (docs/decisions/0038-a-batch-takes-in-what-comes.md).
    pub fn work(&mut self, jobs: &mut Vec<Job>, more: More<'_>) {
        let durable = self.strict || jobs.iter().any(Job::needs_sync);
        let grows = durable || jobs.len() >= GROWING_BATCH_OPS;
        let mut batch = Jobs::new(jobs, grows.then_some(more));
        let mut synced = false;
        if batch.len() > 0 {
            let answer = self.write(&mut batch, durable);
            synced = durable && answer.is_ok();
            for write in batch.writes {
                isolate("answering a write", || write.answer(answer.clone()));
            }
        }
        if !batch.syncs.is_empty() {
            // A batch that failed for want of space says nothing about what stood before it.
            let outcome = if synced { Ok(()) } else { self.sync() };
            let answer = outcome.map(|()| self.status.verifier());
            for reply in batch.syncs {
                drop(reply.send(answer.clone()));
            }
        }
        for reply in batch.compactions {
            let compacted = self.compact();
            drop(reply.send(compacted));
        }
        for (counted, reply) in batch.counts {
            let outcome = self.count(counted);
            drop(reply.send(outcome));
        }
    }

    /// Tells what the session takes, as of the last commit.
    fn count(&mut self, counted: UsageListener) -> Result<(), WorkError> {
        let sum = self.writer()?.count_usage();
        let sum = sum.map_err(|error| self.failed("count", error, false))?;
        isolate("what hears of the usage", || counted(sum)).ok_or(WorkError::Panicked)
    }

    /// Gives space back; readers go on meanwhile, changes wait.
    fn compact(&mut self) -> Result<Compacted, WorkError> {
        // Were a sync of its to fail, what was answered before would be lost with it.
        self.sync()?;
        let done = self.writer()?.compact();
        done.map_err(|error| self.failed("compact", error, false))
    }

    /// Commits a batch and runs its hooks; the answer of all of it.
    pub fn write(
        &mut self,
        batch: &mut dyn Batch,
        durable: bool,
    ) -> Result<Committed<()>, WorkError> {
        let outcome = self.commit(batch, durable);
        for at in 0..batch.len() {
            let operation = batch.operation(at);
            match outcome {
                Ok(()) => isolate("a hook after a commit", || operation.after_commit()),
                Err(_) => isolate("dropping a hook", || operation.give_up()),
            };
        }
        // Where nobody knows whether a commit stands, it never ends: no cache is believed any more.
        if self.status.commits.version().is_none() && self.writer.is_some() {
            self.status.commits.step();
        }
        let verifier = self.status.verifier();
        outcome.map(|()| Committed { value: (), durable, verifier })
    }

    /// Runs the operations between begin and commit. After an error nothing of them is kept.
    fn commit(&mut self, batch: &mut dyn Batch, durable: bool) -> Result<(), WorkError> {
        if !self.run_batch(batch, durable)? {
            // Nothing to keep, so nothing to write: the file stays as it is.
            self.abort()?;
            return if durable { self.sync() } else { Ok(()) };
        }
        self.status.commits.step();
        if let Err(error) = self.writer()?.commit() {
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

    /// Begins, and runs the operations; whether the changes of any are kept. After an error there
    /// is no transaction.
    ///
    /// Hardly ever has one to be undone: most find out whether they may before they change
    /// anything. So they have no savepoints, which cost a small change a tenth; if one has to be
    /// undone after all, all are, and run again with savepoints.
    fn run_batch(&mut self, batch: &mut dyn Batch, durable: bool) -> Result<bool, WorkError> {
        let is_alone = batch.len() == 1 && !batch.may_grow();
        if is_alone || self.wary == 0 {
            self.begin(durable)?;
            let ran = run_together(self.writer()?, batch);
            match ran.map_err(|error| self.gave_up(error))? {
                Some(kept) => return Ok(kept),
                // The batch is its savepoint.
                None if batch.len() == 1 => return Ok(false),
                None => {}
            }
            for at in 0..batch.len() {
                isolate("dropping a hook", || batch.operation(at).give_up());
            }
            self.abort()?;
            self.wary = WARY_BATCHES;
        }
        self.wary -= 1;
        self.begin(durable)?;
        let ran = run_apart(self.writer()?, batch);
        ran.map_err(|error| self.gave_up(error))
    }

    /// Notes that the batch cannot go on.
    fn gave_up(&mut self, error: StoreError) -> WorkError {
        let error = self.failed("batch", error, false);
        self.abort().err().unwrap_or(error)
    }

    fn writer(&mut self) -> Result<&mut dyn Writer, WorkError> {
        self.writer.as_deref_mut().map(|writer| writer as _).ok_or(WorkError::ReadOnly)
    }

    fn begin(&mut self, durable: bool) -> Result<(), WorkError> {
        if std::mem::take(&mut self.has_begun) {
            return Ok(());
        }
        let begun = self.writer()?.begin(durable);
        begun.map_err(|error| self.failed("begin", error, false))
    }

    /// Gives the transaction up, if there is a writer (still).
    fn abort(&mut self) -> Result<(), WorkError> {
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        writer.abort().map_err(|error| self.failed("abort", error, true))
    }

    /// Syncs everything that was committed before.
    pub fn sync(&mut self) -> Result<(), WorkError> {
        match self.writer()?.sync() {
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
            StoreError::Io(_) => in_doubt || self.is_poisoned(),
            StoreError::Full(_) | StoreError::Busy(_) | StoreError::ReadOnly(_) => false,
        };
        if !fatal {
            tracing::warn!(step, %error, "the session did not take a change");
        } else if let Some(mut writer) = self.writer.take() {
            tracing::error!(step, %error, "the session is read-only from now on");
            writer.poison().set(&error);
            if !self.clean {
                // What was answered before and not synced may be gone.
                self.status.epoch.store(writer.advance_epoch(), Ordering::Release);
            }
            self.sync_due = None;
            self.status.read_only.store(true, Ordering::Release);
            // Dropped without close(): the session does not count as cleanly closed.
        }
        WorkError::Store(error)
    }

    /// Whether the store has found that committed data may be lost.
    fn is_poisoned(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.poison().is_set())
    }

    /// Syncs and closes the session; lets go of it whatever comes of that.
    pub fn close(&mut self) -> Result<(), WorkError> {
        let synced = self.sync();
        let writer = self.writer.take();
        synced?;
        let mut writer = writer.ok_or(WorkError::ReadOnly)?;
        writer.close().inspect_err(|error| tracing::error!(%error, "cannot close the session"))?;
        Ok(())
    }
}

/// Runs the operations, and those that come meanwhile; whether the changes of any are kept.
/// `None`, and the rest does not run, if one is not kept that has changed something, or with which
/// the batch was lost.
fn run_together(
    writer: &mut dyn Writer,
    batch: &mut dyn Batch,
) -> Result<Option<bool>, StoreError> {
    let (mut any_kept, mut at) = (false, 0);
    while at < batch.len() || batch.grow() {
        writer.next();
        if run(batch.operation(at), writer) {
            writer.check_batch()?;
            any_kept = true;
        } else if writer.has_changed() || writer.check_batch().is_err() {
            return Ok(None);
        }
        at += 1;
    }
    Ok(Some(any_kept))
}

/// Runs the operations, and those that come meanwhile, each in a savepoint of its own; whether the
/// changes of any are kept.
fn run_apart(writer: &mut dyn Writer, batch: &mut dyn Batch) -> Result<bool, StoreError> {
    let (mut any_kept, mut at) = (false, 0);
    while at < batch.len() || batch.grow() {
        writer.savepoint()?;
        let kept = run(batch.operation(at), writer);
        if kept || !writer.has_changed() {
            writer.release()?;
        } else {
            writer.roll_back()?;
        }
        any_kept |= kept;
        at += 1;
    }
    Ok(any_kept)
}

/// Runs one operation; whether its changes are kept. A panic counts as "not kept"; the operation
/// without an answer answers Panicked.
fn run(operation: &mut dyn WriteOperation, writer: &mut dyn Writer) -> bool {
    isolate("a write operation", || operation.run(writer.txn())).unwrap_or(false)
}
