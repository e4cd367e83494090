//! Why a tool could not do what it was asked for.

use std::path::PathBuf;

use crate::base::BaseError;
use crate::delta::sqlite::OpenError;
use crate::delta::{MergedPath, StoreError};
use crate::overlay::ChangesError;
use crate::vfs::FsError;
use crate::writeback::TargetError;

/// A failure of a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The session cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The session cannot be read, or written, any further.
    #[error("{}: {source}", .session.display())]
    Store {
        /// The session file.
        session: PathBuf,
        /// What SQLite says.
        source: StoreError,
    },
    /// The base that the session names, or that was given, cannot be used.
    #[error("base {}: {source}", .path.display())]
    Base {
        /// The directory.
        path: PathBuf,
        /// Whether the session names it, and nobody gave another.
        is_recorded: bool,
        /// What is wrong with it.
        source: BaseError,
    },
    /// Nothing is there in the merged tree.
    #[error("{}: {source}", .path.display())]
    Path {
        /// The path in the merged tree.
        path: MergedPath,
        /// What is wrong with it.
        source: FsError,
    },
    /// A session without an audit log.
    #[error("{}: has no audit log", .session.display())]
    NoAudit {
        /// The session file.
        session: PathBuf,
    },
    /// Something that was to be made cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The disk is too full for what a session has to take in.
    #[error(
        "{}: sealing needs {} MiB of free space beside it, and there are {}",
        .session.display(), .needed.div_ceil(1 << 20), .available >> 20
    )]
    NoRoom {
        /// The session file.
        session: PathBuf,
        /// What it takes, in bytes.
        needed: u64,
        /// What there is, in bytes.
        available: u64,
    },
    /// A text that should be JSON.
    #[error("{what}: not JSON: {source}")]
    NotJson {
        /// Which text.
        what: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Nothing can be written there, or not that.
    #[error("{what}")]
    Refused {
        /// What, and why not.
        what: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The directory that is written to fails in the middle.
    #[error("{source}; {done} of {all} steps are done, and the rest is not")]
    Unfinished {
        /// Steps that were done.
        done: usize,
        /// All.
        all: usize,
        /// What it says.
        source: TargetError,
    },
    /// The directory that is written to fails.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Something that was asked for with words that make no sense.
    #[error("{what}")]
    Invalid {
        /// What does not.
        what: String,
    },
}

impl From<ChangesError> for InspectError {
    fn from(ChangesError { path, source }: ChangesError) -> Self {
        Self::Path { path, source }
    }
}

impl InspectError {
    /// What the merged tree says of a path.
    pub fn at(path: &MergedPath, source: FsError) -> Self {
        Self::Path { path: path.clone(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Base { is_recorded: true, .. } => {
                Some("the session names this directory; give its place now with --base DIR")
            }
            Self::Base { .. } => Some("give the directory that the session was made over"),
            Self::NoAudit { .. } => Some(
                "only acetate keeps one, from the first `acetate serve` on; `acetate diff` shows \
                 what the session changed",
            ),
            Self::NoRoom { .. } => {
                Some("`acetate seal --dry-run` says what takes it; make room on that disk")
            }
            Self::NotJson { .. } => Some("in JSON, texts stand in double quotes"),
            Self::Refused { hint, .. } => Some(hint),
            Self::Unfinished { .. } => {
                Some("see to that, and run the same command again: it goes on from there")
            }
            Self::Path { source: FsError::Loop, .. } => {
                Some("`acetate check` names it, `acetate check --repair` cuts it loose")
            }
            Self::Store { source: StoreError::Busy(_), .. } => {
                Some("another program holds the session's write lock; try again")
            }
            _ => None,
        }
    }
}

/// The result of a tool's step.
pub type Result<T> = std::result::Result<T, InspectError>;
