//! The order of commits: which of them a snapshot contains.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence counter of commits.
///
/// It increments before a commit and again after its hooks, so it is odd in between. A snapshot
/// taken between two equal even values contains exactly the commits whose hooks have run, and no
/// part of another.
#[derive(Debug, Default)]
pub struct CommitSequence(AtomicU64);

/// A point in time between two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

impl CommitSequence {
    /// The current version; `None` during a commit.
    pub fn version(&self) -> Option<Version> {
        let count = self.0.load(Ordering::SeqCst);
        count.is_multiple_of(2).then_some(Version(count))
    }

    /// Whether no commit began since `version`.
    pub fn is_at(&self, version: Version) -> bool {
        self.0.load(Ordering::SeqCst) == version.0
    }

    /// Begins a commit, or ends one after its hooks.
    pub(super) fn step(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_moment_inside_a_commit() {
        let commits = CommitSequence::default();
        let before = commits.version().unwrap();
        assert!(commits.is_at(before));
        commits.step();
        assert_eq!(commits.version(), None);
        assert!(!commits.is_at(before));
        commits.step();
        assert_ne!(commits.version().unwrap(), before);
    }
}
