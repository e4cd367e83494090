//! What one commit holds.

use crate::delta::Compacted;
use crate::vfs::WriteVerifier;

use super::job::{Job, JobReply, QueuedWrite, UsageListener, WriteOperation};

/// The operations of one commit.
pub(super) trait Batch {
    /// How many there are by now.
    fn len(&self) -> usize;

    /// The one at this place, which is below [`Batch::len`].
    fn operation(&mut self, at: usize) -> &mut dyn WriteOperation;

    /// Whether any may join.
    fn may_grow(&self) -> bool;

    /// Adds those that came meanwhile and may join; whether there were any.
    fn grow(&mut self) -> bool;
}

/// One operation, which none joins.
pub(super) struct Alone<'a>(pub &'a mut dyn WriteOperation);

impl Batch for Alone<'_> {
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

/// Adds the jobs that came meanwhile and may join.
pub(super) type More<'a> = &'a mut dyn FnMut(&mut Vec<Job>);

/// Jobs of the writer thread, by their kind.
pub(super) struct Jobs<'a> {
    /// The operations.
    pub writes: Vec<Box<dyn QueuedWrite>>,
    /// Those who wait for a sync.
    pub syncs: Vec<JobReply<WriteVerifier>>,
    /// Those who want space back.
    pub compactions: Vec<JobReply<Compacted>>,
    /// Those who want the session to be counted.
    pub counts: Vec<(UsageListener, JobReply<()>)>,
    /// `None` where none joins.
    more: Option<More<'a>>,
}

impl<'a> Jobs<'a> {
    /// Takes all of `jobs`, and later what `more` adds, if anything may join.
    pub fn new(jobs: &mut Vec<Job>, more: Option<More<'a>>) -> Self {
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
