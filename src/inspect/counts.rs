//! Counts the changes of a session by kind, in the same way for all commands.

use std::ops::ControlFlow;

use super::diff::{DiffOptions, Difference, DifferenceKind, diff};
use super::error::Result;
use super::fold::each_path;
use super::opened::OpenSession;
use super::selection::Selection;

/// Changes by kind, in paths: a new or deleted directory counts, and each path in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCounts {
    /// New paths.
    pub added: u64,
    /// Deleted base paths.
    pub deleted: u64,
    /// Changed objects that are still at their paths, including retyped ones.
    pub modified: u64,
    /// Objects with another path.
    pub renamed: u64,
    /// Those of `modified` that have another type.
    pub retyped: u64,
}

impl ChangeCounts {
    /// Counts differences, of one path each (see [`each_path`]).
    pub fn of<'d>(differences: impl IntoIterator<Item = &'d Difference>) -> Self {
        let mut counts = Self::default();
        differences.into_iter().for_each(|difference| counts.add(difference.kind));
        counts
    }

    /// Counts one difference.
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

    /// The total; `retyped` is part of `modified`.
    pub fn sum(self) -> u64 {
        self.added + self.deleted + self.modified + self.renamed
    }
}

/// Counts the selected changes of a session, as `diff` shows them. Contents are compared.
///
/// # Errors
/// The session or the base cannot be read.
pub fn count_changes(opened: &OpenSession, selection: Selection) -> Result<ChangeCounts> {
    let (options, mut all) = (DiffOptions { selection, ..DiffOptions::default() }, Vec::new());
    diff(opened, &options, &mut |_, difference| {
        all.push(difference);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(ChangeCounts::of(&each_path(opened, &options, all)?))
}
