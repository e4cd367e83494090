//! Why a workspace could not do what it was asked for.

use std::io;
use std::path::{Path, PathBuf};

use super::guards::GuardError;
use crate::base::BaseError;
use crate::control::Refusal;
use crate::delta::StoreError;
use crate::delta::sqlite::OpenError;
use crate::export::MountError;
use crate::inspect::InspectError;
use crate::server::BindError;
use crate::vfs::{FsError, PatternError};
use crate::worker::WorkError;

/// A failure of a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The base cannot be used.
    #[error("base {}: {source}", .path.display())]
    Base {
        /// The directory.
        path: PathBuf,
        /// Whether the session names it, and nobody gave another.
        is_recorded: bool,
        /// What is wrong with it.
        source: BaseError,
    },
    /// Patterns of what is hidden come to more than can be compiled.
    #[error("the patterns of what is hidden: {0}")]
    Hidden(PatternError),
    /// The session has chunks of another size than was asked for.
    #[error(
        "{}: the session has chunks of {stored} bytes, not {wanted}", .session.display()
    )]
    ChunkSize {
        /// The session file.
        session: PathBuf,
        /// Bytes of its chunks.
        stored: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// A session with changes is to be over another base than the one that it was made over.
    #[error(
        "{}: its changes are over the base {}, not over {}",
        .session.display(), .recorded.display(), .given.display()
    )]
    OtherBase {
        /// The session file.
        session: PathBuf,
        /// The base that it names.
        recorded: PathBuf,
        /// The one that was given.
        given: PathBuf,
    },
    /// A base that was said to be another place of the same tree is another tree.
    #[error(
        "{}: {} is not the tree that its changes are over: {differ} of {compared} objects that \
         were copied up are not there, or have another type or size (such as {first})",
        .session.display(), .given.display()
    )]
    NotMoved {
        /// The session file.
        session: PathBuf,
        /// The base that was given.
        given: PathBuf,
        /// Objects that differ.
        differ: usize,
        /// Objects that were compared.
        compared: usize,
        /// The first that differs, as a path of the tree.
        first: String,
    },
    /// The session cannot be read or written.
    #[error("{}: {source}", .session.display())]
    Store {
        /// The session file.
        session: PathBuf,
        /// What SQLite says.
        source: StoreError,
    },
    /// The session could not be closed, so that what was not synced may be lost.
    #[error("{}: {source}", .session.display())]
    Close {
        /// The session file.
        session: PathBuf,
        /// Why.
        source: WorkError,
    },
    /// There is no place for sessions in memory.
    #[error("cannot make a directory for sessions in memory: {0}")]
    Memory(io::Error),
    /// It cannot be counted what a session takes.
    #[error("{}: cannot count what the session takes: {source}", .session.display())]
    Quota {
        /// The session file.
        session: PathBuf,
        /// Why.
        source: FsError,
    },
    /// An exports file wants a session that is open otherwise.
    #[error(
        "export {export}, mount {at}: the session {} is open with another `{key}`",
        .session.display()
    )]
    Differs {
        /// The session file.
        session: PathBuf,
        /// The export's name.
        export: String,
        /// Where the mount is in it.
        at: String,
        /// What is different: a key of the exports file.
        key: &'static str,
    },
    /// An export cannot be put together.
    #[error("export {export}: {source}")]
    Export {
        /// Its name.
        export: String,
        /// Why.
        source: MountError,
    },
    /// A guard of an export cannot be used.
    #[error("export {export}: {source}")]
    Guard {
        /// The export's name.
        export: String,
        /// Why.
        source: GuardError,
    },
    /// There are no random numbers.
    #[error("no random numbers: {0}")]
    Random(io::Error),
    /// An export is not complete: a defect.
    #[error("an export has no path, or a mount no session")]
    NoExport,
    /// The session could not be closed, so that what was not synced may be lost.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A change was not made.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The tree cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// An address cannot be listened at.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system has no threads to give.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

/// The result of a workspace's step.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn base(path: &Path, source: BaseError) -> Self {
        Self::Base { path: path.to_owned(), is_recorded: false, source }
    }

    pub(super) fn store(session: &Path, source: StoreError) -> Self {
        Self::Store { session: session.to_owned(), source }
    }
}
