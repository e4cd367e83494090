//! What travels through the queues: a caller's closure together with the way back to it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::delta::{ReadTxn, WriteTxn};
use crate::vfs::WriteVerifier;

use super::{Committed, Done, WorkError};

/// The way back to a caller; a caller that gave up is no error.
pub(super) type Reply<T> = oneshot::Sender<Result<T, WorkError>>;

/// Work for the writer thread.
pub(super) enum Job {
    /// An operation.
    Write {
        /// Whether it is answered only after a sync.
        durable: bool,
        /// The operation.
        operation: Box<dyn WriteOperation>,
    },
    /// A caller that waits until everything committed before is synced.
    Sync(Reply<WriteVerifier>),
}

impl Job {
    /// Whether it is answered only after a sync.
    pub fn needs_sync(&self) -> bool {
        matches!(self, Self::Sync(_) | Self::Write { durable: true, .. })
    }
}

/// An operation on the writer thread, whatever its type of answer.
pub(super) trait WriteOperation: Send {
    /// Runs it and keeps its answer; whether its changes are kept. May panic.
    fn run(&mut self, txn: &mut dyn WriteTxn) -> bool;

    /// Runs the hook of an operation whose changes are committed. May panic.
    fn after_commit(&mut self);

    /// Answers: with the error, or with the answer of the operation.
    fn answer(self: Box<Self>, commit: Result<Committed<()>, WorkError>);
}

/// An operation on a reader thread, whatever its type of answer.
pub(super) trait ReadOperation: Send {
    /// Runs it (once) and keeps its answer. May panic.
    fn run(&mut self, txn: &dyn ReadTxn);

    /// Whether it was run, be it in vain.
    fn has_run(&self) -> bool;

    /// Answers: with the error, or with the answer of the operation.
    fn answer(self: Box<Self>, outcome: Result<(), WorkError>);
}

/// A closure for the writer.
pub(super) struct Write<T, F> {
    closure: Option<F>,
    value: Option<T>,
    hook: Option<Box<dyn FnOnce() + Send>>,
    reply: Reply<Committed<T>>,
}

impl<T, F> Write<T, F> {
    /// An operation that answers to `reply`.
    pub fn new(closure: F, reply: Reply<Committed<T>>) -> Self {
        Self { closure: Some(closure), value: None, hook: None, reply }
    }
}

impl<T, F> WriteOperation for Write<T, F>
where
    T: Send,
    F: FnOnce(&mut dyn WriteTxn) -> Done<T> + Send,
{
    fn run(&mut self, txn: &mut dyn WriteTxn) -> bool {
        let Some(closure) = self.closure.take() else { return false };
        let done = closure(txn);
        self.value = Some(done.value);
        self.hook = done.after_commit.filter(|_| done.keep);
        done.keep
    }

    fn after_commit(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook();
        }
    }

    fn answer(self: Box<Self>, commit: Result<Committed<()>, WorkError>) {
        let Self { value, reply, .. } = *self;
        let answer = commit.and_then(|Committed { durable, verifier, .. }| {
            let value = value.ok_or(WorkError::Panicked)?;
            Ok(Committed { value, durable, verifier })
        });
        drop(reply.send(answer));
    }
}

/// A closure for a reader.
pub(super) struct Read<T, F> {
    closure: Option<F>,
    value: Option<T>,
    reply: Reply<T>,
}

impl<T, F> Read<T, F> {
    /// An operation that answers to `reply`.
    pub fn new(closure: F, reply: Reply<T>) -> Self {
        Self { closure: Some(closure), value: None, reply }
    }
}

impl<T: Send, F: FnOnce(&dyn ReadTxn) -> T + Send> ReadOperation for Read<T, F> {
    fn run(&mut self, txn: &dyn ReadTxn) {
        if let Some(closure) = self.closure.take() {
            self.value = Some(closure(txn));
        }
    }

    fn has_run(&self) -> bool {
        self.closure.is_none()
    }

    fn answer(self: Box<Self>, outcome: Result<(), WorkError>) {
        let Self { value, reply, .. } = *self;
        drop(reply.send(outcome.and_then(|()| value.ok_or(WorkError::Panicked))));
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
