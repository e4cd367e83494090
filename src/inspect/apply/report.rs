//! The result of an apply or undo.

use std::collections::HashSet;

use super::keep::KeptCopy;
use super::plan::Loss;
use super::stage::NotSet;
use super::steps::AppliedChange;
use crate::base::BasePath;
use crate::delta::MergedPath;

/// A change that was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path in the merged tree.
    pub path: MergedPath,
    /// The reason, for the user.
    pub why: String,
}

/// A file that an undo puts back as a file of its own, though it had further hard links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLink {
    /// Its path in the merged tree.
    pub path: MergedPath,
    /// The reason, for the user.
    pub why: String,
    /// Number of its change.
    pub(super) change: usize,
}

/// The result of an apply or undo.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The changes whose steps are done.
    pub applied: Vec<AppliedChange>,
    /// Changes that were not made, and those that the session keeps.
    pub skipped: Vec<Skipped>,
    /// Attributes of applied objects that something else changed during the apply: they stay as
    /// that set them.
    pub kept_attributes: Vec<Skipped>,
    /// Changes that the plan left out before they had steps.
    pub left_out: Vec<Skipped>,
    /// Attributes that the user may not set.
    pub not_set: NotSet,
    /// Extended attributes that the host refuses to set.
    pub losses: Vec<Loss>,
    /// Files that an undo could not link to their further names again.
    pub lost_links: Vec<LostLink>,
    /// Steps done and all steps, if the watcher stopped the run; (0, 0) without a journal.
    pub broken_off: Option<(usize, usize)>,
    /// The run was an undo.
    pub is_undo: bool,
    /// The undo repeated an apply that an earlier undo had undone.
    pub is_redo: bool,
    /// The replaced and removed objects that are kept; `None` if none are to be kept.
    pub kept: Option<Vec<KeptCopy>>,
}

impl Report {
    /// The changes that were made and that the session no longer has.
    pub fn done(&self) -> impl Iterator<Item = &AppliedChange> {
        let skipped: HashSet<_> = self.skipped.iter().map(|skipped| &skipped.path).collect();
        self.applied.iter().filter(move |applied| !skipped.contains(&applied.path))
    }

    /// The changes of the objects at these paths in the target.
    pub(super) fn applied_at(&self, paths: &[&BasePath]) -> Vec<AppliedChange> {
        let paths: HashSet<_> = paths.iter().map(|path| MergedPath::of_base(path)).collect();
        self.applied.iter().filter(|applied| paths.contains(&applied.path)).cloned().collect()
    }

    pub(super) fn broken_off_at(self, steps: (usize, usize)) -> Self {
        Self { broken_off: Some(steps), applied: Vec::new(), ..self }
    }
}
