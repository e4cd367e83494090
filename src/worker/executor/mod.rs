//! Where light operations run: on the caller's own thread if that is possible at once ([`Inline`]),
//! or always in the worker's queues ([`Queue`]).

mod inline;

use std::sync::Arc;

use crate::vfs::WriteVerifier;

use super::job::{ReadOperation, WriteOperation};
use super::readers::Readers;
use super::{Committed, WorkError, WorkerShared};

pub(super) use inline::Inline;

/// Runs light operations, or declines them: the caller then queues them.
///
/// What an operation gets and promises does not depend on the executor.
pub(super) trait Executor: Send + Sync {
    /// Runs a read now; `false` if it has to be queued, and nothing was read.
    fn read(&self, readers: &Readers, read: &mut dyn ReadOperation) -> bool;

    /// Commits one change now, and syncs it if it is `durable`; `None` if it has to be queued, and
    /// it did not run.
    fn write(
        &self,
        shared: &Arc<WorkerShared>,
        write: &mut dyn WriteOperation,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>>;

    /// Syncs now if there is nothing to sync or a sync is quick; otherwise `None`.
    fn sync(&self, shared: &Arc<WorkerShared>) -> Option<Result<WriteVerifier, WorkError>>;

    /// Records how many changes or syncs a slice took together.
    fn note_batch(&self, changes: usize);
}

/// Declines all operations.
pub(super) struct Queue;

impl Executor for Queue {
    fn read(&self, _: &Readers, _: &mut dyn ReadOperation) -> bool {
        false
    }

    fn write(
        &self,
        _: &Arc<WorkerShared>,
        _: &mut dyn WriteOperation,
        _: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        None
    }

    fn sync(&self, _: &Arc<WorkerShared>) -> Option<Result<WriteVerifier, WorkError>> {
        None
    }

    fn note_batch(&self, _: usize) {}
}
