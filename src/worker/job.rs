//! The items of the queues: a caller's closure with its reply channel.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::delta::{Compacted, ReadTxn, UsageDelta, WriteTxn};
use crate::vfs::WriteVerifier;

use super::{Committed, OpResult, WorkError};
use crate::request_id::{self, RequestId};

/// The reply channel of a caller. A caller that dropped its end is not an error.
pub(super) type JobReply<T> = oneshot::Sender<Result<T, WorkError>>;

/// An item for the writer.
pub(super) enum Job {
    /// A change.
    Write {
        /// Whether it is answered only after an fsync.
        durable: bool,
        /// The closure.
        operation: Box<dyn QueuedWrite>,
    },
    /// Waits until all earlier commits are synced.
    Sync(JobReply<WriteVerifier>),
    /// Returns free space to the filesystem.
    Compact(JobReply<Compacted>),
    /// Counts the session's usage before any further change.
    Count(UsageListener, JobReply<()>),
}

/// Receives the session's usage on the writer's thread.
pub(super) type UsageListener = Box<dyn FnOnce(UsageDelta) + Send>;

impl Job {
    /// Whether it is answered only after an fsync.
    pub fn needs_sync(&self) -> bool {
        matches!(self, Self::Sync(_) | Self::Compact(_) | Self::Write { durable: true, .. })
    }

    /// The call that the item is part of, if it is a change.
    pub fn request(&mut self) -> RequestId {
        match self {
            Self::Write { operation, .. } => operation.operation().request(),
            Self::Sync(_) | Self::Compact(_) | Self::Count(..) => None,
        }
    }
}

/// A change, with its result type erased.
pub(super) trait WriteOperation {
    /// Runs the closure and keeps its value; returns whether to commit. May panic.
    ///
    /// Runs again if the batch restarts, after [`WriteOperation::drop_hook`], unless it panicked.
    fn run(&mut self, txn: &mut dyn WriteTxn) -> bool;

    /// Runs the hook of a committed operation. May panic.
    fn after_commit(&mut self);

    /// Drops the hook of an operation without a commit, before the next operation runs.
    fn drop_hook(&mut self);

    /// The call that the change is part of.
    fn request(&self) -> RequestId;
}

/// A change with its reply channel.
pub(super) trait QueuedWrite: Send {
    /// Replies with the operation's value, or with the error of its commit.
    fn answer(self: Box<Self>, commit: Result<Committed<()>, WorkError>);

    /// The change itself.
    fn operation(&mut self) -> &mut dyn WriteOperation;
}

/// A read, with its result type erased.
pub(super) trait ReadOperation {
    /// Runs the closure and keeps its value. May panic.
    fn run(&mut self, txn: &dyn ReadTxn);

    /// Whether the closure was started.
    fn has_run(&self) -> bool;

    /// Drops the value, so that the closure can run again.
    fn drop_value(&mut self);

    /// The call that the read is part of.
    fn request(&self) -> RequestId;
}

/// A read with its reply channel.
pub(super) trait QueuedRead: Send {
    /// Replies with the operation's value, or with the error.
    fn answer(self: Box<Self>, outcome: Result<(), WorkError>);

    /// The read itself.
    fn operation(&mut self) -> &mut dyn ReadOperation;
}

/// A closure that makes a change.
pub(super) struct WriteJob<T, F> {
    request: RequestId,
    closure: Option<F>,
    value: Option<T>,
    hook: Option<Box<dyn FnOnce() + Send>>,
}

impl<T, F> WriteJob<T, F> {
    /// Wraps `closure`, which is part of the current call.
    pub fn new(closure: F) -> Self {
        let request = request_id::current();
        Self { request, closure: Some(closure), value: None, hook: None }
    }

    /// The result for the caller, from the outcome of the commit.
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
        // Stays `None` if the closure panics.
        let Some(mut closure) = self.closure.take() else { return false };
        let done = closure(txn);
        self.closure = Some(closure);
        self.value = Some(done.value);
        self.hook = done.after_commit.filter(|_| done.commit);
        done.commit
    }

    fn after_commit(&mut self) {
        if let Some(hook) = self.hook.take() {
            request_id::within(self.request, hook);
        }
    }

    fn drop_hook(&mut self) {
        drop(self.hook.take());
    }

    fn request(&self) -> RequestId {
        self.request
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
    request: RequestId,
    closure: F,
    has_run: bool,
    value: Option<T>,
}

impl<T, F> ReadJob<T, F> {
    /// Wraps `closure`, which is part of the current call.
    pub fn new(closure: F) -> Self {
        Self { request: request_id::current(), closure, has_run: false, value: None }
    }

    /// One that has run, with this value.
    #[cfg(test)]
    pub fn ran(value: T, closure: F) -> Self {
        Self { has_run: true, value: Some(value), ..Self::new(closure) }
    }

    /// The result for the caller.
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

    fn drop_value(&mut self) {
        (self.has_run, self.value) = (false, None);
    }

    fn request(&self) -> RequestId {
        self.request
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

/// Runs a caller's code and catches its panic, so that the thread survives. Logs the panic and
/// returns `None`.
pub(super) fn isolate<T>(what: &'static str, f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            let message = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("(no message)");
            tracing::error!(what, message, "a call panicked");
            None
        }
    }
}
