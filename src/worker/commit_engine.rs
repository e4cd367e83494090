//! The commit engine: runs batches, commits and syncs, and decides which errors are fatal.
//!
//! The thread that holds the engine is the only writer: one of the pool, or a caller's for a short
//! change.
//!
//! Two kinds of errors poison the session (`delta::Poison`) and end its writing. One is corruption,
//! wherever it is found. The other is an I/O error of a commit, abort or sync, because the content
//! of the file is then unknown. The store may also set the poison itself. Any other error fails
//! only its batch: all operations of the batch get the error, and the next batch is tried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::delta::{Compacted, StoreError, StoreErrorKind, Writer};

use super::batch::{AdmitMore, Batch, Jobs, SingleOperation};
use super::job::{Job, UsageListener, WriteOperation, isolate};
use super::limits::{MIN_OPS_TO_ADMIT, QUICK_SYNC, QUICK_SYNC_BYTES, SAVEPOINT_BATCHES};
use super::{Committed, Limits, WorkError, WorkerStatus};
use crate::counters::COUNTERS;
use crate::request_id;

/// The single writer of a session, and what it has yet to sync.
pub(super) struct CommitEngine {
    /// `None` if the session is read-only, poisoned, or closed.
    writer: Option<Box<dyn Writer>>,
    /// Whether there was a writer at the start.
    had_writer: bool,
    status: Arc<WorkerStatus>,
    limits: Limits,
    strict: bool,
    /// Whether all commits are known to be synced. False at the start, because an earlier process
    /// may have been killed before its sync.
    clean: bool,
    /// When the oldest unsynced commit of this process must be synced.
    sync_due: Option<Instant>,
    /// When a thread of the pool next calls [`CommitEngine::run_due`] without being woken.
    next_run_due: Option<Instant>,
    /// Duration of the last commit with an fsync; `None` before the first.
    last_sync_took: Option<Duration>,
    /// Whether [`CommitEngine::try_write`] already began the next transaction.
    has_begun: bool,
    /// Upcoming batches that use savepoints, because a recent operation was rolled back.
    savepoint_batches: u8,
}

impl CommitEngine {
    /// The state before the first batch; without a writer all calls fail with ReadOnly.
    pub fn new(
        writer: Option<Box<dyn Writer>>,
        status: Arc<WorkerStatus>,
        limits: Limits,
        strict: bool,
    ) -> Self {
        Self {
            had_writer: writer.is_some(),
            writer,
            status,
            limits,
            strict,
            clean: false,
            sync_due: None,
            next_run_due: None,
            last_sync_took: None,
            has_begun: false,
            savepoint_batches: 0,
        }
    }

    /// When a thread of the pool must call [`CommitEngine::run_due`], if that is earlier than
    /// planned.
    pub fn due_earlier(&self) -> Option<Instant> {
        self.due().filter(|due| self.next_run_due.is_none_or(|again| *due < again))
    }

    /// When the next sync or maintenance is due.
    fn due(&self) -> Option<Instant> {
        let maintenance = self.writer.as_ref().and_then(|writer| writer.maintenance_at());
        self.sync_due.into_iter().chain(maintenance).min()
    }

    /// Whether all commits of this writer are synced.
    pub fn is_synced(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.unsynced_bytes() == 0)
    }

    /// Whether a sync is expected to take as long as a small change.
    fn is_sync_quick(&self) -> bool {
        let is_little = |writer: &dyn Writer| writer.unsynced_bytes() <= QUICK_SYNC_BYTES;
        self.last_sync_took.is_some_and(|took| took <= QUICK_SYNC)
            && self.writer.as_deref().is_some_and(is_little)
    }

    /// Like [`CommitEngine::write`], for one operation. Returns `None`, without running it, if it
    /// would wait for a lock or a slow fsync.
    pub fn try_write(
        &mut self,
        alone: &mut SingleOperation<'_>,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        // If it turns out to change nothing, there must be nothing that it would have to sync.
        if durable && !self.is_synced() {
            return None;
        }
        if let Err(error) = self.try_begin(durable)? {
            return Some(Err(error));
        }
        self.has_begun = true;
        Some(self.write(alone, durable))
    }

    /// Like [`CommitEngine::sync`]. Returns `None`, without a sync, if it would wait for a lock or
    /// a slow fsync.
    pub fn try_sync(&mut self) -> Option<Result<(), WorkError>> {
        if self.is_synced() {
            return Some(Ok(()));
        }
        if let Err(error) = self.try_begin(true)? {
            return Some(Err(error));
        }
        let begun = Some(Instant::now());
        // A batch without an operation: its commit is a sync.
        let outcome = self.writer.as_mut()?.commit();
        Some(self.note_sync(begun, outcome))
    }

    /// Runs what is due between batches: the timer's sync and the store's maintenance. Returns when
    /// to call it again at the latest.
    pub fn run_due(&mut self) -> Option<Instant> {
        if self.sync_due.is_some_and(|due| due <= Instant::now()) {
            // The failure is logged, and the next caller gets an error.
            let _ = self.sync();
        }
        if let Some(writer) = self.writer.as_mut().filter(|writer| writer.wants_maintenance()) {
            writer.maintenance();
        }
        self.next_run_due = self.due();
        self.next_run_due
    }

    /// Has the store free memory that only makes later batches faster.
    pub fn rest(&mut self) {
        if let Some(writer) = &mut self.writer {
            isolate("freeing memory", || writer.rest());
        }
    }

    /// Runs one batch and answers all its jobs. `more` adds jobs that arrive while it runs, but
    /// only to a batch that is synced or starts with several jobs
    /// (docs/decisions/0038-admission-to-a-running-batch.md).
    pub fn work(&mut self, jobs: &mut Vec<Job>, more: AdmitMore<'_>) {
        let durable = self.strict || jobs.iter().any(Job::needs_sync);
        let grows = durable || jobs.len() >= MIN_OPS_TO_ADMIT;
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
            // A batch that failed for lack of space says nothing about earlier commits.
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

    /// Reports the session's usage as of the last commit.
    fn count(&mut self, counted: UsageListener) -> Result<(), WorkError> {
        let sum = self.writer()?.count_usage();
        let sum = sum.map_err(|error| self.failed("count", error, false))?;
        isolate("a usage listener", || counted(sum)).ok_or(WorkError::Panicked)
    }

    /// Returns free space to the filesystem. Reads continue; changes wait.
    fn compact(&mut self) -> Result<Compacted, WorkError> {
        // A failed sync in the compaction would lose earlier unsynced commits too.
        self.sync()?;
        let done = self.writer()?.compact();
        done.map_err(|error| self.failed("compact", error, false))
    }

    /// Commits a batch and runs its hooks; returns the outcome for all its operations.
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
                Err(_) => isolate("dropping a hook", || operation.drop_hook()),
            };
        }
        // If the outcome of a commit is unknown, the writer is gone and the count stays odd, so
        // that no cache entry is trusted any more.
        if self.status.commits.version().is_none() && self.writer.is_some() {
            self.status.commits.step();
        }
        let verifier = self.status.verifier();
        outcome.map(|()| Committed { value: (), durable, verifier })
    }

    /// Runs the operations in one transaction. After an error none of their changes is kept.
    fn commit(&mut self, batch: &mut dyn Batch, durable: bool) -> Result<(), WorkError> {
        loop {
            if !self.run_with_room(batch, durable)? {
                // No change to commit, so the file is not written.
                self.abort()?;
                return if durable && !self.is_synced() { self.sync() } else { Ok(()) };
            }
            if let Err(error) = self.writer()?.prepare() {
                let error = self.failed("prepare", error, false);
                return Err(self.abort().err().unwrap_or(error));
            }
            self.status.commits.step();
            let begun = Instant::now();
            match self.writer()?.commit() {
                Ok(()) => {
                    if durable {
                        self.note_sync_time(begun.elapsed());
                    }
                    COUNTERS.batches.observe(batch.len() as u64);
                    self.note_commit(durable);
                    return Ok(());
                }
                Err(_) if self.lacks_room() && self.make_room(batch) => {
                    // Nothing was committed; the batch runs again.
                    self.status.commits.step();
                }
                Err(error) => return Err(self.failed("commit", error, true)),
            }
        }
    }

    /// Records how long a sync took.
    fn note_sync_time(&mut self, took: Duration) {
        self.last_sync_took = Some(took);
        COUNTERS.syncs.observe_time(took);
    }

    /// Records that a batch was committed.
    fn note_commit(&mut self, durable: bool) {
        self.clean = durable;
        self.sync_due = if durable {
            None
        } else {
            self.sync_due.or_else(|| Instant::now().checked_add(self.limits.sync_interval))
        };
    }

    /// As [`CommitEngine::run_batch`]; while there is no room for what the batch takes away, makes
    /// some and runs it again.
    fn run_with_room(&mut self, batch: &mut dyn Batch, durable: bool) -> Result<bool, WorkError> {
        let mut may_make = true;
        loop {
            let ran = self.run_batch(batch, durable);
            if !may_make || !self.lacks_room() {
                return ran;
            }
            self.abort()?;
            // Without more room, the batch runs once more, as it is.
            may_make = self.make_room(batch);
        }
    }

    fn lacks_room(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.lacks_room())
    }

    /// Gives up some of what is saved for checkpoints, so that the batch can run again; returns
    /// whether there was any. The batch's transaction has ended.
    fn make_room(&mut self, batch: &mut dyn Batch) -> bool {
        for at in 0..batch.len() {
            isolate("dropping a hook", || batch.operation(at).drop_hook());
        }
        let Some(writer) = &mut self.writer else { return false };
        let made = writer.make_room();
        self.note_commit(false);
        made.unwrap_or_else(|error| {
            self.failed("make room", error, true);
            false
        })
    }

    /// Begins a transaction and runs the operations; returns whether any of them commits. After an
    /// error there is no transaction.
    ///
    /// Most operations check their preconditions before they change anything, so rollbacks are
    /// rare. Therefore operations run without savepoints, which would cost a small change a tenth
    /// of its time. If an operation must be rolled back, the batch restarts with savepoints.
    fn run_batch(&mut self, batch: &mut dyn Batch, durable: bool) -> Result<bool, WorkError> {
        let is_alone = batch.len() == 1 && !batch.may_grow();
        if is_alone || self.savepoint_batches == 0 {
            self.begin(durable)?;
            let ran = run_without_savepoints(self.writer()?, batch);
            match ran.map_err(|error| self.abort_failed_batch(error))? {
                Some(kept) => return Ok(kept),
                // For a single operation, the transaction is the savepoint.
                None if batch.len() == 1 => return Ok(false),
                None => {}
            }
            for at in 0..batch.len() {
                isolate("dropping a hook", || batch.operation(at).drop_hook());
            }
            self.abort()?;
            self.savepoint_batches = SAVEPOINT_BATCHES;
        }
        self.savepoint_batches -= 1;
        self.begin(durable)?;
        let ran = run_with_savepoints(self.writer()?, batch);
        ran.map_err(|error| self.abort_failed_batch(error))
    }

    /// Records that the batch failed, and aborts its transaction.
    fn abort_failed_batch(&mut self, error: StoreError) -> WorkError {
        let error = self.failed("batch", error, false);
        self.abort().err().unwrap_or(error)
    }

    fn writer(&mut self) -> Result<&mut dyn Writer, WorkError> {
        self.writer.as_deref_mut().map(|writer| writer as _).ok_or(WorkError::ReadOnly)
    }

    /// Begins a transaction on a caller's thread. `None` if it, or its commit, would wait there.
    fn try_begin(&mut self, durable: bool) -> Option<Result<(), WorkError>> {
        if durable && !self.is_sync_quick() {
            return None;
        }
        match self.writer.as_mut()?.try_begin(durable) {
            Ok(begun) => begun.then_some(Ok(())),
            Err(error) => Some(Err(self.failed("begin", error, false))),
        }
    }

    fn begin(&mut self, durable: bool) -> Result<(), WorkError> {
        if std::mem::take(&mut self.has_begun) {
            return Ok(());
        }
        let begun = self.writer()?.begin(durable);
        begun.map_err(|error| self.failed("begin", error, false))
    }

    /// Aborts the transaction, if the writer still exists.
    fn abort(&mut self) -> Result<(), WorkError> {
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        writer.abort().map_err(|error| self.failed("abort", error, true))
    }

    /// Syncs all earlier commits.
    pub fn sync(&mut self) -> Result<(), WorkError> {
        let begun = (!self.is_synced()).then(Instant::now);
        let outcome = self.writer()?.sync();
        self.note_sync(begun, outcome)
    }

    /// Records the outcome of a sync that began at `begun`; `None` if there was nothing to sync.
    fn note_sync(
        &mut self,
        begun: Option<Instant>,
        outcome: Result<(), StoreError>,
    ) -> Result<(), WorkError> {
        if let Some(begun) = begun {
            self.note_sync_time(begun.elapsed());
        }
        match outcome {
            Ok(()) => {
                self.clean = true;
                self.sync_due = None;
                Ok(())
            }
            Err(error) => {
                // If the error is not fatal, the timer retries.
                let retry = Instant::now().checked_add(self.limits.sync_interval);
                self.sync_due = self.sync_due.and(retry);
                Err(self.failed("sync", error, true))
            }
        }
    }

    /// Records a failure of the store; `in_doubt` says that an I/O error of this step leaves the
    /// content of the file unknown. Returns the error for all affected callers.
    fn failed(&mut self, step: &'static str, error: StoreError, in_doubt: bool) -> WorkError {
        let fatal = match error.kind {
            StoreErrorKind::Corrupt => true,
            StoreErrorKind::Io => in_doubt || self.is_poisoned(),
            StoreErrorKind::Full
            | StoreErrorKind::Busy
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Lost
            | StoreErrorKind::InDoubt => false,
        };
        if !fatal {
            tracing::warn!(step, %error, "the session did not take a change");
        } else if let Some(mut writer) = self.writer.take() {
            tracing::error!(step, %error, "the session is read-only from now on");
            writer.poison().set(&error);
            if !self.clean {
                // Answered commits may be lost: the new verifier makes clients write again.
                self.status.epoch.store(writer.advance_epoch(), Ordering::Release);
            }
            self.sync_due = None;
            self.status.read_only.store(true, Ordering::Release);
            // Dropped without close(), so the session is not marked as cleanly closed.
        }
        WorkError::Store(error)
    }

    /// Whether the store found that committed data may be lost.
    fn is_poisoned(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.poison().is_set())
    }

    /// Drops the writer without closing the session.
    pub fn drop_writer(&mut self) {
        self.writer = None;
    }

    /// Syncs and closes the session; drops the writer even on an error. A session that was opened
    /// without a writer has nothing to close.
    pub fn close(&mut self) -> Result<(), WorkError> {
        if !self.had_writer {
            return Ok(());
        }
        let synced = self.sync();
        let writer = self.writer.take();
        synced?;
        let mut writer = writer.ok_or(WorkError::ReadOnly)?;
        writer.close().inspect_err(|error| tracing::error!(%error, "cannot close the session"))?;
        Ok(())
    }
}

/// Runs the operations, and those that join; returns whether any of them commits. Returns `None`,
/// without running the rest, if a rejected operation changed something or broke the batch.
fn run_without_savepoints(
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

/// Runs the operations, and those that join, each in its own savepoint; returns whether any
/// commits.
fn run_with_savepoints(writer: &mut dyn Writer, batch: &mut dyn Batch) -> Result<bool, StoreError> {
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

/// Runs one operation; returns whether it commits. A panic counts as a rejection; the operation
/// then has no value and answers Panicked.
fn run(operation: &mut dyn WriteOperation, writer: &mut dyn Writer) -> bool {
    request_id::within(operation.request(), || {
        isolate("a write operation", || operation.run(writer.txn())).unwrap_or(false)
    })
}
