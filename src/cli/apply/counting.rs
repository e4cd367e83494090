//! How many paths the changes of a plan stand for: as many as `diff` counts.

use std::collections::{HashMap, HashSet};

use crate::cli::error::CliError;
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference};
use crate::inspect::fold::each_path;
use crate::inspect::opened::OpenSession;

/// How many paths each change of a plan stands for.
#[derive(Debug, Default)]
pub(super) struct PathCounts {
    /// By the path of the change; 1 where there is none.
    paths: HashMap<MergedPath, usize>,
    /// Directories whose time alone changes. They have no line, and count only where there is
    /// nothing else.
    pub quiet: HashSet<MergedPath>,
}

impl PathCounts {
    /// Counts what these changes stand for, before they are applied.
    pub fn count(
        &mut self,
        opened: &OpenSession,
        differences: &[Difference],
    ) -> Result<(), CliError> {
        let each = each_path(opened, &DiffOptions::default(), differences.to_vec())?;
        let changes: HashMap<_, _> =
            differences.iter().map(|difference| (&difference.path, &difference.change)).collect();
        for difference in &each {
            let mut dirs = std::iter::once(difference.path.clone()).chain(difference.path.above());
            if let Some(change) = dirs.find_map(|dir| changes.get(&dir)) {
                *self.paths.entry(change.path.clone()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// How many paths these changes stand for.
    pub fn sum<'p>(&self, changes: impl Iterator<Item = &'p MergedPath>) -> usize {
        let (mut shown, mut quiet) = (0, 0);
        for path in changes {
            match self.quiet.contains(path) {
                true => quiet += 1,
                false => shown += self.paths.get(path).copied().unwrap_or(1),
            }
        }
        if shown == 0 { quiet } else { shown }
    }
}
