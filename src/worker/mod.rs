//! The one seam between async and blocking code.
//!
//! One writer thread with a queue bounded in operations and bytes, a savepoint per operation,
//! as many operations per commit as are waiting (group commit); reader threads with their own
//! snapshot connections. Answers leave only after the commit that holds their change.

mod error;

use std::sync::Arc;

use crate::delta::{ReadTxn, Store, StoreError, WriteTxn};
use crate::vfs::WriteVerifier;

pub use error::WorkError;

/// How the worker is set up.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Sync every batch before its answers leave (`--durability strict`).
    pub strict: bool,
    /// Reader threads, each with a connection of its own.
    pub readers: usize,
}

/// What an operation on the writer thread gives back to the worker.
pub struct Done<T> {
    /// The answer.
    pub value: T,
    /// Whether its changes are kept; if not, they are rolled back to its savepoint.
    pub keep: bool,
    /// Runs on the writer thread after the commit that holds the changes, before the answer
    /// leaves: this is where caches forget. Does not run if the commit fails.
    pub after_commit: Option<Box<dyn FnOnce() + Send>>,
}

/// An answer of the writer.
#[derive(Debug, Clone, Copy)]
pub struct Committed<T> {
    /// What the operation returned.
    pub value: T,
    /// Whether the commit that holds it was synced.
    pub durable: bool,
    /// The verifier at that commit.
    pub verifier: WriteVerifier,
}

/// Runs blocking work on the session; shared by all connections.
pub struct Worker {}

impl Worker {
    /// Starts the threads.
    pub fn start(_store: Arc<dyn Store>, _options: WorkerOptions) -> Result<Self, StoreError> {
        todo!()
    }

    /// Runs `f` on a reader thread, on a snapshot taken when it starts.
    pub async fn read<T: Send + 'static>(
        &self,
        _f: impl FnOnce(&dyn ReadTxn) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        todo!()
    }

    /// Runs `f` on the writer thread, and returns once the batch that holds it is committed;
    /// with `durable` (or in strict mode), once it is synced.
    ///
    /// `bytes` is what the operation holds in memory, for the bound of the queue.
    pub async fn write<T: Send + 'static>(
        &self,
        _bytes: usize,
        _durable: bool,
        _f: impl FnOnce(&mut dyn WriteTxn) -> Done<T> + Send + 'static,
    ) -> Result<Committed<T>, WorkError> {
        todo!()
    }

    /// Returns once everything committed before is synced.
    pub async fn sync(&self) -> Result<WriteVerifier, WorkError> {
        todo!()
    }

    /// The write verifier in force.
    pub fn verifier(&self) -> WriteVerifier {
        todo!()
    }

    /// Finishes what is queued, syncs, checkpoints and closes the session.
    pub async fn shut_down(&self) -> Result<(), WorkError> {
        todo!()
    }
}
