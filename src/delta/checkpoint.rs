//! Checkpoints: moments whose tree a session can still show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Ino, MergedPath};
use crate::vfs::{Name, Time};

/// The number of a checkpoint; later ones have larger numbers, and none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub i64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a checkpoint was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// A person or program asked for it.
    Manual,
    /// A tool call or a command began.
    Tool,
    /// Nothing changed for a while.
    Idle,
    /// Something was about to replace the tree.
    Safety,
    /// A fork began here.
    Fork,
}

impl CheckpointKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Manual, Self::Tool, Self::Idle, Self::Safety, Self::Fork];

    /// The name in `acetate_checkpoint.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Tool => "tool",
            Self::Idle => "idle",
            Self::Safety => "safety",
            Self::Fork => "fork",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A checkpoint to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCheckpoint {
    /// A name that no other checkpoint of the session has.
    pub name: Option<String>,
    /// What it is made for.
    pub kind: CheckpointKind,
    /// Keys and values of the user.
    pub labels: BTreeMap<String, String>,
    /// The time, from the clock of the session's server.
    pub time: Time,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number.
    pub id: CheckpointId,
    /// Its name.
    pub name: Option<String>,
    /// What it was made for.
    pub kind: CheckpointKind,
    /// When it was made.
    pub time: Time,
    /// Keys and values of the user.
    pub labels: BTreeMap<String, String>,
    /// The last row of the audit log at that moment; 0 if there was none.
    pub last_op: i64,
    /// Inode numbers from here on were given later.
    pub next_ino: Ino,
    /// How many rows are saved for it, and their size in bytes, as far as the session has counted
    /// them: those of the newest are not.
    pub saved: Option<(u64, u64)>,
}

/// Where rows of the tree changed after a checkpoint; more may be listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedRows {
    /// Objects whose rows or content changed, and those that were made.
    pub objects: BTreeSet<Ino>,
    /// Entries that changed, by directory and name. Those of directories that were made are not
    /// listed.
    pub entries: BTreeSet<(Ino, Name)>,
    /// Paths at which the base was hidden or shown again.
    pub paths: BTreeSet<MergedPath>,
}
