//! The operations of one commit.

use crate::delta::Compacted;
use crate::vfs::WriteVerifier;

use super::job::{Job, JobReply, QueuedWrite, UsageListener, WriteOperation};

/// The operations of one commit, which may grow while it runs.
pub(super) trait Batch {
    /// The number of operations so far.
    fn len(&self) -> usize;

    /// The operation at index `at`, which must be below [`Batch::len`].
    fn operation(&mut self, at: usize) -> &mut dyn WriteOperation;

    /// Whether operations may join.
    fn may_grow(&self) -> bool;

    /// Adds operations that arrived and may join; returns whether there were any.
    fn grow(&mut self) -> bool;
}

/// A batch of one operation that no other joins.
pub(super) struct SingleOperation<'a>(pub &'a mut dyn WriteOperation);

impl Batch for SingleOperation<'_> {
    fn len(&self) -> usize {
        1
    }

    fn operation(&mut self, _at: usize) -> &mut dyn WriteOperation {
        self.0
    }

    fn may_grow(&self) -> bool {
        false
    }

    fn grow(&mut self) -> bool {
        false
    }
}

/// Adds jobs that arrived and may join.
pub(super) type AdmitMore<'a> = &'a mut dyn FnMut(&mut Vec<Job>);

/// Jobs of a write slice, by kind.
pub(super) struct Jobs<'a> {
    /// The changes.
    pub writes: Vec<Box<dyn QueuedWrite>>,
    /// Callers that wait for a sync.
    pub syncs: Vec<JobReply<WriteVerifier>>,
    /// Callers that wait for a compaction.
    pub compactions: Vec<JobReply<Compacted>>,
    /// Callers that wait for the usage count.
    pub counts: Vec<(UsageListener, JobReply<()>)>,
    /// `None` if no job may join.
    more: Option<AdmitMore<'a>>,
}

impl<'a> Jobs<'a> {
    /// Takes all of `jobs`; later jobs come from `more`.
    pub fn new(jobs: &mut Vec<Job>, more: Option<AdmitMore<'a>>) -> Self {
        let mut taken = Self {
            writes: Vec::with_capacity(jobs.len()),
            syncs: Vec::new(),
            compactions: Vec::new(),
            counts: Vec::new(),
            more,
        };
        taken.take(jobs.drain(..));
        taken
    }

    fn take(&mut self, jobs: impl Iterator<Item = Job>) {
        for job in jobs {
            match job {
                Job::Write { operation, .. } => self.writes.push(operation),
                Job::Sync(reply) => self.syncs.push(reply),
                Job::Compact(reply) => self.compactions.push(reply),
                Job::Count(counted, reply) => self.counts.push((counted, reply)),
            }
        }
    }
}

impl Batch for Jobs<'_> {
    fn len(&self) -> usize {
        self.writes.len()
    }

    fn operation(&mut self, at: usize) -> &mut dyn WriteOperation {
        self.writes[at].operation()
    }

    fn may_grow(&self) -> bool {
        self.more.is_some()
    }

    fn grow(&mut self) -> bool {
        let before = self.writes.len();
        let mut came = Vec::new();
        if let Some(more) = &mut self.more {
            more(&mut came);
        }
        self.take(came.into_iter());
        self.writes.len() > before
    }
}
