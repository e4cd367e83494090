//! A checkpoint to be made, and what a restore came to, as requests and answers have them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::PathText;
use crate::delta::{CheckpointKind, NewCheckpoint, RestoreOutcome};
use crate::vfs::Time;

/// A checkpoint to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointText {
    /// Its name.
    pub name: Option<String>,
    /// Its kind, as `acetate_checkpoint.kind` has it.
    pub kind: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether the newest one is used instead if nothing changed since.
    #[serde(default)]
    pub reuses: bool,
}

impl CheckpointText {
    /// The same with a kind that is known. The server sets the time.
    ///
    /// # Errors
    /// The kind is not known.
    pub fn to_new(&self) -> Result<NewCheckpoint, Refusal> {
        let kind = CheckpointKind::from_name(&self.kind)
            .ok_or_else(|| Refusal::new(format!("{}: no kind of checkpoints", self.kind)))?;
        let (name, labels) = (self.name.clone(), self.labels.clone());
        Ok(NewCheckpoint {
            name,
            kind,
            labels,
            time: Time::default(),
            reuses: self.reuses,
            needed: None,
        })
    }
}

/// A restore of paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestorePathsText {
    /// The checkpoint's id.
    pub to: i64,
    /// Refuse it if a row of the log after this one changed anything.
    pub seen: i64,
    /// The paths, each with everything below: all names of each object that differs.
    pub paths: Vec<PathText>,
    /// Directories above them that are missing, and come back without the rest of their entries.
    pub dirs: Vec<PathText>,
    /// The paths at which nothing was at the checkpoint.
    pub absent: Vec<PathText>,
}

/// What a restore came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestoreAnswer {
    /// The tree is that of the checkpoint.
    Done {
        /// The id of the checkpoint of the tree before.
        before: i64,
        /// How many objects of the session changed, came back or went.
        objects: u64,
    },
    /// There is no such checkpoint.
    NoCheckpoint,
    /// Something changed since the user looked.
    ChangedSince,
}

impl From<RestoreOutcome> for RestoreAnswer {
    fn from(outcome: RestoreOutcome) -> Self {
        match outcome {
            RestoreOutcome::Restored(restored) => {
                Self::Done { before: restored.before.0, objects: restored.rows.objects }
            }
            RestoreOutcome::NoCheckpoint => Self::NoCheckpoint,
            RestoreOutcome::ChangedSince => Self::ChangedSince,
        }
    }
}
