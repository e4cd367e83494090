//! What travels through the queues: a caller's closure together with the way back to it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::delta::{Compacted, ReadTxn, UsageDelta, WriteTxn};
use crate::vfs::WriteVerifier;

use super::{Committed, OpResult, WorkError};

/// The way back to a caller; a caller that gave up is no error.
pub(super) type JobReply<T> = oneshot::Sender<Result<T, WorkError>>;

/// Work for the writer thread.
pub(super) enum Job {
    /// An operation.
    Write {
        /// Whether it is answered only after a sync.
        durable: bool,
        /// The operation.
        operation: Box<dyn QueuedWrite>,
    },
    /// A caller that waits until everything committed before is synced.
    Sync(JobReply<WriteVerifier>),
    /// A caller that wants space back.
    Compact(JobReply<Compacted>),
    /// A caller that wants what the session takes to be counted, before any further change.
    Count(UsageListener, JobReply<()>),
}

/// Hears what the session takes, where the changes are made.
pub(super) type UsageListener = Box<dyn FnOnce(UsageDelta) + Send>;

impl Job {
    /// Whether it is answered only after a sync.
    pub fn needs_sync(&self) -> bool {
        matches!(self, Self::Sync(_) | Self::Compact(_) | Self::Write { durable: true, .. })
    }
}

/// A change, whatever its type of answer.
pub(super) trait WriteOperation {
    /// Runs it and keeps its answer; whether its changes are kept. May panic.
    ///
    /// It runs once more where the batch has to begin anew, after [`WriteOperation::give_up`];
    /// not if it panicked.
    fn run(&mut self, txn: &mut dyn WriteTxn) -> bool;

    /// Runs the hook of an operation whose changes are committed. May panic.
    fn after_commit(&mut self);

    /// Drops that hook, because nothing is committed: before the next operation runs.
    fn give_up(&mut self);
}

/// A change that waits for the writer thread.
pub(super) trait QueuedWrite: Send {
    /// Answers: with the error, or with the answer of the operation.
    fn answer(self: Box<Self>, commit: Result<Committed<()>, WorkError>);

    /// It as the change that it is.
    fn operation(&mut self) -> &mut dyn WriteOperation;
}

/// A read, whatever its type of answer.
pub(super) trait ReadOperation {
    /// Runs it and keeps its answer. May panic.
    fn run(&mut self, txn: &dyn ReadTxn);

    /// Whether it was run, be it in vain.
    fn has_run(&self) -> bool;

    /// Drops the answer: it runs once more.
    fn give_up(&mut self);
}

/// A read that waits for a reader thread.
pub(super) trait QueuedRead: Send {
    /// Answers: with the error, or with the answer of the operation.
    fn answer(self: Box<Self>, outcome: Result<(), WorkError>);

    /// It as the read that it is.
    fn operation(&mut self) -> &mut dyn ReadOperation;
}

/// A closure that changes something.
pub(super) struct WriteJob<T, F> {
    closure: Option<F>,
    value: Option<T>,
    hook: Option<Box<dyn FnOnce() + Send>>,
}

impl<T, F> WriteJob<T, F> {
    /// A change by `closure`.
    pub fn new(closure: F) -> Self {
        Self { closure: Some(closure), value: None, hook: None }
    }

    /// The answer, after a commit or in place of one.
    pub fn outcome(
        self,
        commit: Result<Committed<()>, WorkError>,
    ) -> Result<Committed<T>, WorkError> {
        let Committed { durable, verifier, .. } = commit?;
        let value = self.value.ok_or(WorkError::Panicked)?;
        Ok(Committed { value, durable, verifier })
    }
}

impl<T, F> WriteOperation for WriteJob<T, F>
where
    T: Send,
    F: FnMut(&mut dyn WriteTxn) -> OpResult<T> + Send,
{
    fn run(&mut self, txn: &mut dyn WriteTxn) -> bool {
        self.value = None;
        // Gone for good if it panics.
        let Some(mut closure) = self.closure.take() else { return false };
        let done = closure(txn);
        self.closure = Some(closure);
        self.value = Some(done.value);
        self.hook = done.after_commit.filter(|_| done.commit);
        done.commit
    }

    fn after_commit(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook();
        }
    }

    fn give_up(&mut self) {
        drop(self.hook.take());
    }
}

impl<T, F> QueuedWrite for (WriteJob<T, F>, JobReply<Committed<T>>)
where
    T: Send,
    F: FnMut(&mut dyn WriteTxn) -> OpResult<T> + Send,
{
    fn answer(self: Box<Self>, commit: Result<Committed<()>, WorkError>) {
        let (write, reply) = *self;
        drop(reply.send(write.outcome(commit)));
    }

    fn operation(&mut self) -> &mut dyn WriteOperation {
        &mut self.0
    }
}

/// A closure that reads.
pub(super) struct ReadJob<T, F> {
    closure: F,
    has_run: bool,
    value: Option<T>,
}

impl<T, F> ReadJob<T, F> {
    /// A read by `closure`.
    pub fn new(closure: F) -> Self {
        Self { closure, has_run: false, value: None }
    }

    /// The answer, after the read was run.
    pub fn outcome(self, outcome: Result<(), WorkError>) -> Result<T, WorkError> {
        outcome?;
        self.value.ok_or(WorkError::Panicked)
    }
}

impl<T, F: FnMut(&dyn ReadTxn) -> T> ReadOperation for ReadJob<T, F> {
    fn run(&mut self, txn: &dyn ReadTxn) {
        self.has_run = true;
        self.value = Some((self.closure)(txn));
    }

    fn has_run(&self) -> bool {
        self.has_run
    }

    fn give_up(&mut self) {
        (self.has_run, self.value) = (false, None);
    }
}

impl<T: Send, F: FnMut(&dyn ReadTxn) -> T + Send> QueuedRead for (ReadJob<T, F>, JobReply<T>) {
    fn answer(self: Box<Self>, outcome: Result<(), WorkError>) {
        let (read, reply) = *self;
        drop(reply.send(read.outcome(outcome)));
    }

    fn operation(&mut self) -> &mut dyn ReadOperation {
        &mut self.0
    }
}

/// Runs code that belongs to a caller, so that its panic does not end the thread; `None`, and a
/// line in the log, if it panics.
pub(super) fn isolate<T>(what: &'static str, f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            let message = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("(no message)");
            tracing::error!(what, message, "panic");
            None
        }
    }
}
