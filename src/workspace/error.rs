//! Errors of a workspace.

use std::io;
use std::path::{Path, PathBuf};

use super::guards::GuardError;
use crate::base::BaseError;
use crate::control::Refusal;
use crate::delta::StoreError;
use crate::delta::postgres::HoldError;
use crate::delta::sqlite::OpenError;
use crate::export::AssemblyError;
use crate::inspect::InspectError;
use crate::pattern::PatternError;
use crate::server::BindError;
use crate::system_error::words;
use crate::vfs::FsError;
use crate::worker::WorkError;

/// An error of a workspace.
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
        /// Whether the path is the one that the session records.
        is_recorded: bool,
        /// The error.
        source: BaseError,
    },
    /// A session in a database cannot be used.
    #[error("{url}: {source}")]
    Database {
        /// The session's name.
        url: String,
        /// The error.
        source: Box<HoldError>,
    },
    /// A replica of a session in a database cannot be made.
    #[error("the replica {}: {source}", .path.display())]
    Hydration {
        /// The replica's file.
        path: PathBuf,
        /// The error.
        source: Box<HoldError>,
    },
    /// A replica has changes that the database lacks.
    #[error(
        "the replica {} is newer than the session in the database, which was restored, or lost \
         changes",
        .path.display()
    )]
    NewerReplica {
        /// The replica's file.
        path: PathBuf,
    },
    /// A session in a database was made over another base.
    #[error("{url}: {} is not the base of the session", .base.display())]
    CopiedBase {
        /// The session's name.
        url: String,
        /// The directory.
        base: PathBuf,
    },
    /// The directory for replicas cannot be used.
    #[error("{}: {}", .path.display(), words(.source))]
    LocalDir {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// No directory for replicas is known.
    #[error("there is no HOME or XDG_CACHE_HOME, so no directory for the session's replica")]
    NoLocalDir,
    /// The `hide` patterns exceed the limits of the glob compiler.
    #[error("the patterns of what is hidden: {0}")]
    Hidden(PatternError),
    /// The session has another chunk size than requested.
    #[error(
        "{}: the session has chunks of {stored} bytes, not {wanted}", .session.display()
    )]
    ChunkSize {
        /// The session file.
        session: PathBuf,
        /// Its chunk size, in bytes.
        stored: u64,
        /// The requested chunk size, in bytes.
        wanted: u64,
    },
    /// A session with changes was opened over another base than its own.
    #[error(
        "{}: its changes are over the base {}, not over {}",
        .session.display(), .recorded.display(), .given.display()
    )]
    OtherBase {
        /// The session file.
        session: PathBuf,
        /// The recorded base.
        recorded: PathBuf,
        /// The given base.
        given: PathBuf,
    },
    /// The given base is not the tree of the recorded base at another path.
    #[error(
        "{}: {} is not the tree that its changes are over: {differ} of {compared} objects that \
         were copied up are not there, or have another type or size (such as {first})",
        .session.display(), .given.display()
    )]
    NotMoved {
        /// The session file.
        session: PathBuf,
        /// The given base.
        given: PathBuf,
        /// Number of objects that differ.
        differ: usize,
        /// Number of objects that were compared.
        compared: usize,
        /// The first object that differs, as a merged path.
        first: String,
    },
    /// The session cannot be read or written.
    #[error("{}: {source}", .session.display())]
    Store {
        /// The session file.
        session: PathBuf,
        /// The error of SQLite.
        source: StoreError,
    },
    /// The session was not closed cleanly: unsynced changes may be lost.
    #[error("{}: {source}", .session.display())]
    Close {
        /// The session file.
        session: PathBuf,
        /// The error.
        source: WorkError,
    },
    /// The directory for sessions in memory cannot be created.
    #[error("cannot make a directory for sessions in memory: {}", words(.0))]
    Memory(io::Error),
    /// The session's usage cannot be counted.
    #[error("{}: cannot count what the session takes: {source}", .session.display())]
    Quota {
        /// The session file.
        session: PathBuf,
        /// The error.
        source: FsError,
    },
    /// A session is open with another setting than the exports file requires.
    #[error(
        "export {export}, mount {at}: the session {} is open with another `{key}`",
        .session.display()
    )]
    Differs {
        /// The session file.
        session: PathBuf,
        /// The export's name.
        export: String,
        /// The mount point.
        at: String,
        /// The setting, as a key of the exports file.
        key: &'static str,
    },
    /// An export cannot be assembled.
    #[error("export {export}: {source}")]
    Export {
        /// Name of the export.
        export: String,
        /// The error.
        source: AssemblyError,
    },
    /// A session of an export is another one than before: someone replaced its file.
    #[error("export {export}: one of its session files was replaced while it was served")]
    Replaced {
        /// Name of the export.
        export: String,
    },
    /// The sessions of an export that a template made no longer exist.
    #[error("export {export}: its sessions are gone")]
    Gone {
        /// Name of the export.
        export: String,
    },
    /// A session of an export was lost to another server, and is being closed.
    #[error("export {export}: a session was lost, and is being closed")]
    SessionLost {
        /// Name of the export.
        export: String,
    },
    /// The registry of instances cannot be used.
    #[error("the registry of what templates made: {0}")]
    Registry(StoreError),
    /// A place that a template names cannot be used.
    #[error("{}: {}", .path.display(), words(.source))]
    Place {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// An export was not made, because the exports file was read again.
    #[error("export {export}: the exports file was read again while it was made; mount it again")]
    Reloaded {
        /// The export's name.
        export: String,
    },
    /// An export is not opened, because the sessions of others are all in use.
    #[error("{sessions} sessions are open, as many as may be, and all are in use")]
    TooManyOpen {
        /// How many may be open.
        sessions: usize,
    },
    /// An export was not added, because its base or the directory of a session does not answer.
    #[error("export {export}: directory {} does not answer", .base.display())]
    BaseHangs {
        /// The export's name.
        export: String,
        /// The directory.
        base: PathBuf,
    },
    /// A guard of an export cannot be used.
    #[error("export {export}: {source}")]
    Guard {
        /// The export's name.
        export: String,
        /// The error.
        source: GuardError,
    },
    /// The system provides no random numbers.
    #[error("cannot get random numbers: {}", words(.0))]
    Random(io::Error),
    /// An export without a path, or a mount without a session: a bug.
    #[error("an export has no path, or a mount no session")]
    NoExport,
    /// The session was not closed cleanly: unsynced changes may be lost.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A change was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The tree cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// Binding an address failed.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Threads cannot be started.
    #[error("cannot start threads: {}", words(.0))]
    Threads(io::Error),
}

/// Result type of this module.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn base(path: &Path, source: BaseError) -> Self {
        Self::Base { path: path.to_owned(), is_recorded: false, source }
    }

    pub(super) fn store(session: &Path, source: StoreError) -> Self {
        Self::Store { session: session.to_owned(), source }
    }
}
