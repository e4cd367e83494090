//! How many changes of each kind there are: all commands count alike.

use std::ops::ControlFlow;

use super::diff::{DiffOptions, Difference, DifferenceKind, diff};
use super::error::Result;
use super::fold::each_path;
use super::opened::OpenSession;

/// Changes by kind. Each path counts: a directory that is new or gone, and all that is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCounts {
    /// New paths.
    pub added: u64,
    /// Paths of the base that are gone.
    pub deleted: u64,
    /// What is still at its path, of another type too.
    pub modified: u64,
    /// What is at another path.
    pub renamed: u64,
    /// How many of `modified` are of another type.
    pub retyped: u64,
}

impl ChangeCounts {
    /// Counts these; each is a path (see [`each_path`]).
    pub fn of<'d>(differences: impl IntoIterator<Item = &'d Difference>) -> Self {
        let mut counts = Self::default();
        differences.into_iter().for_each(|difference| counts.add(difference.kind));
        counts
    }

    /// Counts one more.
    pub fn add(&mut self, kind: DifferenceKind) {
        match kind {
            DifferenceKind::Added => self.added += 1,
            DifferenceKind::Deleted => self.deleted += 1,
            DifferenceKind::Modified => self.modified += 1,
            DifferenceKind::Renamed => self.renamed += 1,
            DifferenceKind::Retyped => {
                self.modified += 1;
                self.retyped += 1;
            }
        }
    }

    /// How many there are.
    pub fn sum(self) -> u64 {
        self.added + self.deleted + self.modified + self.renamed
    }
}

/// Counts what a session changed; contents are compared.
///
/// # Errors
/// The session or the base cannot be read.
pub fn count_changes(opened: &OpenSession) -> Result<ChangeCounts> {
    let (options, mut all) = (DiffOptions::default(), Vec::new());
    diff(opened, &options, &mut |_, difference| {
        all.push(difference);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(ChangeCounts::of(&each_path(opened, &options, all)?))
}
