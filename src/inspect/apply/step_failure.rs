//! Why a step of an apply is not done.

use crate::inspect::InspectError;
use crate::system_error::words;
use crate::writeback::TargetError;

/// Why a step is not done.
pub(super) enum StepFailure {
    /// The step cannot be done; its change alone is skipped.
    Skip(String),
    /// The host refuses, and the run ends.
    Fail(TargetError),
    /// The run ends with this error.
    Stop(InspectError),
}

impl From<TargetError> for StepFailure {
    fn from(error: TargetError) -> Self {
        match error.is_of_object() {
            true => Self::Skip(words(&error.source)),
            false => Self::Fail(error),
        }
    }
}
