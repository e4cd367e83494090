//! Writing on a caller's thread: a change at once, where changes come one by one. Where several
//! come, one commit for all of them is cheaper, and the writer thread makes it: it takes the next
//! ones while callers' threads still answer the last.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::vfs::WriteVerifier;

use super::batch::Alone;
use super::commit_engine::CommitEngine;
use super::job::WriteOperation;
use super::limits::SOLO_WRITES;
use super::{Committed, WorkError, WorkerShared};

/// Whether others' changes are about to come, as far as the last ones tell.
#[derive(Debug, Default)]
pub(super) struct WriteContention {
    /// Changes that have to come alone until none are expected.
    solo_streak: AtomicU8,
}

impl WriteContention {
    /// Whether several are likely to share a commit.
    fn is_expected(&self) -> bool {
        self.solo_streak.load(Ordering::Relaxed) > 0
    }

    /// Notes how many changes or syncs came together.
    pub fn note(&self, changes: usize) {
        let next = |solo_streak: u8| match changes {
            0 => None,
            1 => solo_streak.checked_sub(1),
            _ => Some(SOLO_WRITES),
        };
        // Where nothing changes, it stays.
        let _ = self.solo_streak.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

impl WorkerShared {
    /// Commits one change on the caller's thread, if it comes alone and waits neither for a lock
    /// nor for a disk's sync.
    pub fn write_here(
        &self,
        write: &mut dyn WriteOperation,
        durable: bool,
    ) -> Option<Result<Committed<()>, WorkError>> {
        if durable || self.strict {
            return None;
        }
        self.as_writer(|writing| writing.try_write(&mut Alone(write)))
    }

    /// Answers who waits for a sync on the caller's thread, if there is nothing to sync.
    pub fn sync_here(&self) -> Option<Result<WriteVerifier, WorkError>> {
        self.as_writer(|writing| writing.is_synced().then(|| Ok(self.status.verifier())))
    }

    /// Does a caller's `work` on its own thread, if nobody else writes, waits to, or is about to.
    fn as_writer<T>(&self, work: impl FnOnce(&mut CommitEngine) -> Option<T>) -> Option<T> {
        if !self.callers_write
            || self.write_contention.is_expected()
            || self.thread_waits.load(Ordering::Relaxed)
        {
            return None;
        }
        let permit = self.watch.begin_inline()?;
        // Until its end, what comes meanwhile waits and wakes nobody.
        let guard = self.writes.take_over()?;
        // The thread may have been at work just now, and notes afterwards whether for several.
        if self.write_contention.is_expected() {
            return None;
        }
        // If the store panicked under another holder, the writer thread finds out.
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
