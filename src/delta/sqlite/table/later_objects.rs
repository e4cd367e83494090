//! The objects that a restore removes because they were made after the checkpoint.

use crate::delta::{Checkpoint, Ino};

/// Objects that were made after a checkpoint.
pub struct LaterObjects {
    next_ino: Ino,
    scope: LaterScope,
}

enum LaterScope {
    WholeTree,
    /// The objects of the temporary table `chosen_object`.
    Chosen,
}

impl LaterObjects {
    /// All later objects of the tree.
    pub fn all(to: &Checkpoint) -> Self {
        Self { next_ino: to.next_ino, scope: LaterScope::WholeTree }
    }

    /// The later objects in the temporary table `chosen_object`, which a restore of paths fills.
    pub fn chosen(to: &Checkpoint) -> Self {
        Self { next_ino: to.next_ino, scope: LaterScope::Chosen }
    }

    /// The SQL condition that `column` is the number of such an object.
    pub fn condition(&self, column: &str) -> String {
        let next_ino = self.next_ino.0.cast_signed();
        match self.scope {
            LaterScope::WholeTree => format!("{column} >= {next_ino}"),
            LaterScope::Chosen => {
                format!("{column} IN (SELECT ino FROM temp.chosen_object WHERE ino >= {next_ino})")
            }
        }
    }
}
