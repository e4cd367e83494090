//! The error type of the tools.

use std::path::PathBuf;

use super::apply::ApplyAdvice;
use super::restore_call::CallRefusal;
use super::similar_names::SimilarPaths;
use crate::base::BaseError;
use crate::delta::postgres::HoldError;
use crate::delta::sqlite::OpenError;
use crate::delta::{MergedPath, StoreError, StoreErrorKind};
use crate::overlay::ChangesError;
use crate::system_error::words;
use crate::vfs::FsError;
use crate::writeback::TargetError;

/// A failure of a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The session cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The open session can no longer be read or written.
    #[error("{}: {source}", .session.display())]
    Store {
        /// The session file.
        session: PathBuf,
        /// The error of the store.
        source: StoreError,
    },
    /// The session's database refuses, or does not answer.
    #[error("{url}: {source}")]
    Database {
        /// The session's name.
        url: String,
        /// The error.
        source: Box<HoldError>,
    },
    /// The base that the session records, or that the caller gave, cannot be used.
    #[error("base {}: {source}", .path.display())]
    Base {
        /// The directory.
        path: PathBuf,
        /// The path comes from the session, not from the caller.
        is_recorded: bool,
        /// The cause.
        source: BaseError,
    },
    /// An operation on a path of the merged tree failed.
    #[error("{}: {source}", .path.display())]
    Path {
        /// The path in the merged tree.
        path: MergedPath,
        /// The cause.
        source: FsError,
    },
    /// The session has no audit log.
    #[error("{}: has no audit log", .session.display())]
    NoAudit {
        /// The session file.
        session: PathBuf,
    },
    /// An output file cannot be written.
    #[error("{}: {}", .path.display(), words(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The disk has too little free space to seal a session.
    #[error(
        "{}: sealing needs {} MiB of free space beside it, and there are {}",
        .session.display(), .needed.div_ceil(1 << 20), .available >> 20
    )]
    NoRoom {
        /// The session file.
        session: PathBuf,
        /// The space that is needed, in bytes.
        needed: u64,
        /// The space that is free, in bytes.
        available: u64,
    },
    /// A text is not valid JSON.
    #[error("{what}: not JSON: {source}")]
    NotJson {
        /// A name for the text.
        what: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// Neither the session nor its base has or had an object at a path that the user named.
    #[error("{}: no such file or directory", .path.display())]
    Unknown {
        /// The path in the merged tree.
        path: MergedPath,
        /// Whether relative paths begin at the root of the tree.
        is_from_root: bool,
    },
    /// A path is neither in the tree nor in that of the checkpoint.
    #[error(
        "{}: neither there now nor at the checkpoint{}", .path.display(), instead(.similar)
    )]
    NeverThere {
        /// The path in the merged tree.
        path: MergedPath,
        /// Paths that the user may have meant.
        similar: SimilarPaths,
    },
    /// An apply or undo is refused.
    #[error("{what}")]
    Refused {
        /// What is refused, and why.
        what: String,
        /// What the user can do about it.
        advice: ApplyAdvice,
    },
    /// A write to the target directory failed after some steps were done.
    #[error("{source}; stopped after {done} of {all} steps")]
    Unfinished {
        /// The number of steps done.
        done: usize,
        /// The number of all steps.
        all: usize,
        /// The cause.
        source: TargetError,
    },
    /// An operation on the target directory failed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The session has no such checkpoint.
    #[error("{text}: no such checkpoint{}", offer(others))]
    NoCheckpoint {
        /// What the user wrote.
        text: String,
        /// Names and ids of others; empty if the session has none.
        others: Vec<String>,
    },
    /// A tool call is not taken back.
    #[error("tool call {call}: {why}")]
    CallRefused {
        /// The call.
        call: i64,
        /// Why.
        why: CallRefusal,
    },
    /// The arguments make no sense.
    #[error("{what}")]
    Invalid {
        /// The message.
        what: String,
    },
    /// A checkpoint at which a fork began was removed, so it is not known what changed since.
    #[error("{what}")]
    ForkPointRemoved {
        /// Which one.
        what: String,
    },
    /// The caller stopped it: see [`StopFlag`](super::stop::StopFlag).
    #[error("stopped")]
    Stopped,
}

fn instead(similar: &SimilarPaths) -> String {
    let paths: Vec<_> = similar.paths.iter().map(|path| path.display().to_string()).collect();
    match &similar.dir {
        _ if !paths.is_empty() => format!("; similar paths: {}", paths.join(", ")),
        Some(dir) => format!("; the closest directory above is {}", dir.display()),
        None => String::new(),
    }
}

fn offer(others: &[String]) -> String {
    match others {
        [] => "; the session has none".to_owned(),
        [only] => format!("; there is {only}"),
        _ => format!("; there are {}", others.join(", ")),
    }
}

impl From<ChangesError> for InspectError {
    fn from(ChangesError { path, source }: ChangesError) -> Self {
        Self::Path { path, source }
    }
}

impl InspectError {
    /// An error of the merged tree at `path`.
    pub fn at(path: &MergedPath, source: FsError) -> Self {
        Self::Path { path: path.clone(), source }
    }

    /// What the user can do about the error, without the names of commands. [`Self::Refused`] has
    /// advice instead.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Base { source: BaseError::Denied, .. }
            | Self::Path { source: FsError::Access, .. } => Some(
                "check its permissions, run this as a user who may read it, or choose paths \
                 without it",
            ),
            Self::Base { is_recorded: true, .. } => {
                Some("the session names this directory; give its place now")
            }
            Self::Base { .. } => Some("give the directory that the session was made over"),
            Self::NoAudit { .. } => {
                Some("only acetate keeps one, from the first time that it serves the session")
            }
            Self::NoRoom { .. } => Some("make room on that disk"),
            Self::NotJson { .. } => Some("a JSON string needs double quotes"),
            Self::Unfinished { .. } => {
                Some("fix that, and run the same command again: it continues from there")
            }
            Self::Path { source: FsError::Loop, .. } => {
                Some("a check of the session names the directory, and a repair detaches it")
            }
            Self::Unknown { is_from_root: true, .. } => Some("paths are those in the mount"),
            Self::Unknown { is_from_root: false, .. } => Some(
                "relative paths begin at the current directory, which is in the tree; a / before \
                 them stands for its root",
            ),
            Self::Store { source, .. } if source.kind == StoreErrorKind::Busy => {
                Some("another program holds the session's write lock; try again")
            }
            _ => None,
        }
    }
}

/// The result of a tool.
pub type Result<T> = std::result::Result<T, InspectError>;
