//! A checkpoint to be made, as a request has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::delta::{CheckpointKind, NewCheckpoint};
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
        Ok(NewCheckpoint { name, kind, labels, time: Time::default(), reuses: self.reuses })
    }
}
