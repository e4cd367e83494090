//! Why a tool call is not taken back, in words.

use crate::delta::{CheckpointId, MergedPath};

/// How many calls an error names.
pub(super) const MAX_OFFERED: u64 = 5;

/// How many paths an error lists.
const MAX_LISTED: usize = 10;

/// Why a tool call is not taken back.
#[derive(Debug, thiserror::Error)]
pub enum CallRefusal {
    /// It was never recorded.
    #[error("no such tool call{}", offer(.last))]
    NoCall {
        /// The last calls.
        last: Vec<i64>,
    },
    /// Another program recorded it, or it was recorded afterwards.
    #[error("only its time is known, to the second, and not what changed while it ran")]
    NoBounds,
    /// It ran without a checkpoint.
    #[error("no checkpoint was made before it")]
    NoCheckpoint,
    /// The checkpoint before it was removed.
    #[error("the checkpoint before it, {0}, was removed")]
    CheckpointRemoved(CheckpointId),
    /// Rows since then are gone.
    #[error("the log has lost changes since then")]
    LogCut,
    /// A row of the log is not acetate's, or does not have the whole path.
    #[error("row {0} of acetate_op does not say which path changed")]
    UnknownPath(i64),
    /// Other calls ran at the same time.
    #[error("{other} ran at the same time")]
    Overlaps {
        /// One of them.
        other: NamedCall,
        /// The checkpoint before the call.
        to: Option<CheckpointId>,
    },
    /// Paths that would go back were changed again after the call.
    #[error("{} changed again after the call{}: {}", count(.paths), by(.later), list(.paths))]
    ChangedAgain {
        /// These paths, sorted.
        paths: Vec<MergedPath>,
        /// What changed them.
        later: LaterChanges,
        /// The checkpoint before the call.
        to: CheckpointId,
    },
    /// The call set the mode or owner of directories, which go back only with all in them.
    #[error(
        "the mode or owner of {} was set by the call, and other things changed in {} since{}: {}",
        list(.dirs), if .dirs.len() == 1 { "it" } else { "them" }, by(.later), list(.paths)
    )]
    DirAttributes {
        /// The directories.
        dirs: Vec<MergedPath>,
        /// What changed in them, sorted.
        paths: Vec<MergedPath>,
        /// What changed it.
        later: LaterChanges,
        /// The checkpoint before the call.
        to: CheckpointId,
    },
}

/// What changed paths after a tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaterChanges {
    /// The tool calls among it, the newest first.
    pub calls: Vec<NamedCall>,
    /// Whether anything changed outside these calls.
    pub is_outside_calls: bool,
}

/// A tool call, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCall {
    /// The call's number.
    pub id: i64,
    /// Its tool.
    pub tool: Vec<u8>,
}

impl std::fmt::Display for NamedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tool call {} ({})", self.id, String::from_utf8_lossy(&self.tool))
    }
}

/// Why nothing is left to be taken back of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NothingLeft {
    /// Nothing changed while the call ran.
    #[error("tool call {call} changed nothing")]
    Unchanged {
        /// The call.
        call: i64,
    },
    /// Its changes were taken back, or changed back.
    #[error("tool call {call}: nothing of what it changed is left")]
    ChangedBack {
        /// The call.
        call: i64,
    },
    /// Only times of directories differ, which no restore compares.
    #[error(
        "tool call {call}: of what it changed, only the times of directories are left, and a \
         restore does not take these back: {}", list(.dirs)
    )]
    DirTimes {
        /// The call.
        call: i64,
        /// The directories, sorted.
        dirs: Vec<MergedPath>,
    },
}

fn offer(last: &[i64]) -> String {
    let last: Vec<_> = last.iter().map(i64::to_string).collect();
    match &*last {
        [] => "; the session has none".to_owned(),
        [only] => format!("; there is {only}"),
        _ => format!("; the last are {}", last.join(", ")),
    }
}

fn count(paths: &[MergedPath]) -> String {
    match paths {
        [_] => "a path was".to_owned(),
        _ => format!("{} paths were", paths.len()),
    }
}

fn by(later: &LaterChanges) -> String {
    if later.calls.is_empty() {
        return String::new();
    }
    let shown = usize::try_from(MAX_OFFERED).unwrap_or(usize::MAX);
    let calls: Vec<_> = later.calls.iter().take(shown).map(NamedCall::to_string).collect();
    let others = later.is_outside_calls || later.calls.len() > calls.len();
    let among = if others { ", among others" } else { "," };
    format!("{among} by {}", calls.join(", "))
}

fn list(paths: &[MergedPath]) -> String {
    let shown = paths.iter().take(MAX_LISTED).map(|path| path.display().to_string());
    let shown: Vec<_> = shown.collect();
    let more = if paths.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}
