//! The order of commits: which of them a snapshot holds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells whether a commit is under way, and counts them.
///
/// The count moves before a commit and once more after its hooks: odd in between. So what was
/// taken between two equal even counts holds exactly the commits that were answered, or are
/// about to be, and whose hooks have run: no half of one.
#[derive(Debug, Default)]
pub struct Commits(AtomicU64);

/// A moment between two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

impl Commits {
    /// The moment now; `None` while a commit is under way.
    pub fn version(&self) -> Option<Version> {
        let count = self.0.load(Ordering::SeqCst);
        count.is_multiple_of(2).then_some(Version(count))
    }

    /// Whether no commit has begun since `version`.
    pub fn is_at(&self, version: Version) -> bool {
        self.0.load(Ordering::SeqCst) == version.0
    }

    /// Begins a commit, or ends it after its hooks.
    pub(super) fn step(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_moment_inside_a_commit() {
        let commits = Commits::default();
        let before = commits.version().unwrap();
        assert!(commits.is_at(before));
        commits.step();
        assert_eq!(commits.version(), None);
        assert!(!commits.is_at(before));
        commits.step();
        assert_ne!(commits.version().unwrap(), before);
    }
}
