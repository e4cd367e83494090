//! Runs operations on their callers' threads: reads over connections that never wait for a lock,
//! and changes while they arrive one at a time. For concurrent changes a shared commit of the
//! pool is cheaper: its thread runs the next batch while callers' threads still send the last
//! replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::vfs::WriteVerifier;

use super::Executor;
use crate::request_id;
use crate::worker::batch::SingleOperation;
use crate::worker::commit_engine::CommitEngine;
use crate::worker::job::{ReadOperation, WriteOperation};
use crate::worker::limits::SOLO_WRITES;
use crate::worker::pool::SliceKind;
use crate::worker::readers::Readers;
use crate::worker::thread_watch::ThreadWatch;
use crate::worker::{Committed, WorkError, WorkerShared};

/// Runs operations on their callers' threads where [`ThreadWatch`] permits.
pub(in crate::worker) struct Inline {
    watch: Arc<ThreadWatch>,
    contention: WriteContention,
}

impl Inline {
    /// Concurrent changes are not expected yet.
    pub fn new(watch: Arc<ThreadWatch>) -> Self {
        Self { watch, contention: WriteContention::default() }
    }

    /// Runs `work` on the caller's thread if no other thread writes, waits to write, or soon will.
    fn as_writer<T>(
        &self,
        shared: &Arc<WorkerShared>,
        work: impl FnOnce(&mut CommitEngine) -> Option<T>,
    ) -> Option<T> {
        if self.contention.is_expected() || shared.thread_waits.load(Ordering::Relaxed) {
            return None;
        }
        let permit = self.watch.begin_inline()?;
        // While it is held, new items wake no thread.
        let _guard = shared.writes.try_inline().then(|| InlineWriteGuard(shared))?;
        // A slice may have just noted that several changes arrived.
        if self.contention.is_expected() {
            return None;
        }
        // A poisoned lock is reported by a slice.
        let mut engine = shared.engine.try_lock().ok()?;
        shared.writer_activity.begin(permit.began, request_id::current());
        let outcome = work(&mut engine);
        shared.writer_activity.end();
        if outcome.is_some() {
            self.contention.note(1 + usize::from(shared.writes.is_waited_for()));
        }
        let due = engine.due_earlier();
        drop(engine);
        if let Some(due) = due {
            shared.wake_writer_at(due);
        }
        outcome
    }
}

/// Held while a caller does the threads' work.
struct InlineWriteGuard<'a>(&'a Arc<WorkerShared>);

impl Drop for InlineWriteGuard<'_> {
    /// Schedules a slice if items came while the guard was held.
    fn drop(&mut self) {
        let needs = self.0.writes.end_inline();
        self.0.schedule(SliceKind::Write, needs);
    }
}

impl Executor for Inline {
    fn read(&self, readers: &Readers, read: &mut dyn ReadOperation) -> bool {
        self.watch.begin_inline().is_some_and(|_permit| readers.read_here(read))
    }

    fn write(
        &self,
        shared: &Arc<WorkerShared>,
        write: &mut dyn WriteOperation,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        self.as_writer(shared, |engine| engine.try_write(&mut SingleOperation(write), durable))
    }

    fn sync(&self, shared: &Arc<WorkerShared>) -> Option<Result<WriteVerifier, WorkError>> {
        let synced = self.as_writer(shared, CommitEngine::try_sync)?;
        Some(synced.map(|()| shared.status.verifier()))
    }

    fn note_batch(&self, changes: usize) {
        self.contention.note(changes);
    }
}

/// Predicts from recent changes whether concurrent ones are likely.
#[derive(Debug, Default)]
struct WriteContention {
    /// Number of single changes until no concurrent ones are expected.
    solo_streak: AtomicU8,
}

impl WriteContention {
    /// Whether several changes are likely to share a commit.
    fn is_expected(&self) -> bool {
        self.solo_streak.load(Ordering::Relaxed) > 0
    }

    /// Records how many changes or syncs arrived together.
    fn note(&self, changes: usize) {
        let next = |solo_streak: u8| match changes {
            0 => None,
            1 => solo_streak.checked_sub(1),
            _ => Some(SOLO_WRITES),
        };
        // An error means that the value stays.
        let _ = self.solo_streak.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
