//! Writing on a caller's thread, while changes arrive one at a time. For concurrent changes a
//! shared commit of the writer thread is cheaper: it runs the next batch while callers' threads
//! still send the last replies.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::vfs::WriteVerifier;

use super::batch::SingleOperation;
use super::commit_engine::CommitEngine;
use super::job::WriteOperation;
use super::limits::SOLO_WRITES;
use super::{Committed, WorkError, WorkerShared};

/// Predicts from recent changes whether concurrent ones are likely.
#[derive(Debug, Default)]
pub(super) struct WriteContention {
    /// Number of single changes until no concurrent ones are expected.
    solo_streak: AtomicU8,
}

impl WriteContention {
    /// Whether several changes are likely to share a commit.
    fn is_expected(&self) -> bool {
        self.solo_streak.load(Ordering::Relaxed) > 0
    }

    /// Records how many changes or syncs arrived together.
    pub fn note(&self, changes: usize) {
        let next = |solo_streak: u8| match changes {
            0 => None,
            1 => solo_streak.checked_sub(1),
            _ => Some(SOLO_WRITES),
        };
        // An error means that the value stays.
        let _ = self.solo_streak.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

impl WorkerShared {
    /// Commits one change on the caller's thread. `None`, without running it, if other changes
    /// wait, or if it would wait for a lock or an fsync.
    pub fn write_here(
        &self,
        write: &mut dyn WriteOperation,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        if durable || self.strict {
            return None;
        }
        self.as_writer(|writing| writing.try_write(&mut SingleOperation(write)))
    }

    /// Answers a sync on the caller's thread; `None` if there may be something to sync.
    pub fn sync_here(&self) -> Option<Result<WriteVerifier, WorkError>> {
        self.as_writer(|writing| writing.is_synced().then(|| Ok(self.status.verifier())))
    }

    /// Runs `work` on the caller's thread if no other thread writes, waits to write, or soon will.
    fn as_writer<T>(&self, work: impl FnOnce(&mut CommitEngine) -> Option<T>) -> Option<T> {
        if !self.callers_write
            || self.write_contention.is_expected()
            || self.thread_waits.load(Ordering::Relaxed)
        {
            return None;
        }
        let permit = self.watch.begin_inline()?;
        // While it is held, new items wake no thread.
        let guard = self.writes.try_inline()?;
        // The writer thread may have just noted that several changes arrived.
        if self.write_contention.is_expected() {
            return None;
        }
        // A poisoned lock is reported by the writer thread.
        let mut writing = self.writing.try_lock().ok()?;
        self.writer_activity.begin(permit.began);
        let outcome = work(&mut writing);
        self.end_writing();
        if outcome.is_some() {
            self.write_contention.note(1 + usize::from(guard.is_waited_for()));
        }
        let wants_thread = writing.wants_thread();
        drop(writing);
        if wants_thread {
            self.writes.wake();
        }
        outcome
    }
}
