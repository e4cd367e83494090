//! Errors of creating and opening a session, and the mapping of SQLite's codes to [`StoreError`].

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::delta::{StoreError, StoreErrorKind};

use crate::delta::sqlite::table::schema::SPEC_VERSION;
use crate::system_error::words;

/// A session cannot be created or opened; the file is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist.
    #[error("{}: no such session", .path.display())]
    Missing {
        /// The session file.
        path: PathBuf,
    },
    /// This user may not read the file.
    #[error("{}: permission denied", .path.display())]
    Denied {
        /// The session file.
        path: PathBuf,
    },
    /// A session cannot be created because the file exists.
    #[error("{}: file exists", .path.display())]
    Exists {
        /// The existing file.
        path: PathBuf,
    },
    /// The path is a directory, device or other special file.
    #[error("{}: not a regular file", .path.display())]
    NotFile {
        /// The path that was given as the session file.
        path: PathBuf,
    },
    /// The file has no SQLite header.
    #[error("{}: not a SQLite database", .path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// The file has the header of an encrypted database.
    #[error("{}: the database is encrypted", .path.display())]
    Encrypted {
        /// The session file.
        path: PathBuf,
    },
    /// A SQLite database without the tables of a session.
    #[error("{}: a SQLite database, but not a session (no table {tables})", .path.display())]
    NotSession {
        /// The file.
        path: PathBuf,
        /// The missing tables, comma-separated.
        tables: String,
    },
    /// An empty database without its WAL.
    #[error("{}: the session is empty, and its WAL {} is missing", .path.display(), .wal.display())]
    LostWal {
        /// The session file.
        path: PathBuf,
        /// The missing WAL.
        wal: PathBuf,
    },
    /// A session or copy cannot be created because a WAL or journal without its database is there.
    #[error("{}: lies beside no session file, and may hold data", .wal.display())]
    LeftoverWal {
        /// The WAL or journal.
        wal: PathBuf,
    },
    /// A session of the specification before version 0.4.
    #[error("{}: a session of version {version} of the specification", .path.display())]
    OldSpec {
        /// The session file.
        path: PathBuf,
        /// The version, detected by columns.
        version: &'static str,
    },
    /// A session format of a later acetate.
    #[error("{}: session format {found} is newer than {known}", .path.display())]
    Newer {
        /// The session file.
        path: PathBuf,
        /// `acetate_meta.format_version`.
        found: i64,
        /// The newest format that this program supports.
        known: i64,
    },
    /// A session of the specification after version 0.4.
    #[error(
        "{}: a session of version {found} of the specification, newer than {}",
        .path.display(), SPEC_VERSION
    )]
    NewerSpec {
        /// The session file.
        path: PathBuf,
        /// `fs_config.schema_version`.
        found: String,
    },
    /// A database that is synchronised with a cloud service.
    #[error(
        "{}: the database is synced with a cloud service ({})",
        .path.display(), .info.display()
    )]
    CloudSynced {
        /// The session file.
        path: PathBuf,
        /// The service's file beside it.
        info: PathBuf,
    },
    /// Another server has the session open, or a command that changes it.
    #[error("{}: in use by another server or command{}", .path.display(), by(*.holder))]
    InUse {
        /// The session file.
        path: PathBuf,
        /// Its process id, where it is known.
        holder: Option<u32>,
    },
    /// A session that was moved to a database.
    #[error("{}: the session was moved to {url}", .path.display())]
    Moved {
        /// The file that it was in.
        path: PathBuf,
        /// The session's name.
        url: String,
    },
    /// A replica of a session in a database, which alone may change it.
    #[error("{}: a copy of the session {url}, which is in a database", .path.display())]
    Replica {
        /// The replica's file.
        path: PathBuf,
        /// The session's name.
        url: String,
    },
    /// The disk is too full to compact the session.
    #[error(
        "{}: compacting needs {} MiB of free space beside it, and there are {}",
        .path.display(), .needed.div_ceil(1 << 20), .available >> 20
    )]
    NoRoom {
        /// The session file.
        path: PathBuf,
        /// Needed while compacting, in bytes.
        needed: u64,
        /// Available, in bytes.
        available: u64,
    },
    /// The disk is too full for a copy of the session.
    #[error(
        "{}: the copy needs {} MiB of free space, and there are {}",
        .path.display(), .needed.div_ceil(1 << 20), .available >> 20
    )]
    NoRoomForCopy {
        /// The copy.
        path: PathBuf,
        /// Needed, in bytes.
        needed: u64,
        /// Available, in bytes.
        available: u64,
    },
    /// The session cannot be copied.
    #[error("{}: cannot be copied to {}: {source}", .path.display(), .to.display())]
    Copy {
        /// The session file.
        path: PathBuf,
        /// The copy.
        to: PathBuf,
        /// SQLite's error.
        source: StoreError,
    },
    /// An invalid chunk size.
    #[error("chunk size {bytes}: must be a power of two from {} to {} bytes", .least, .most)]
    ChunkSize {
        /// The requested size, in bytes.
        bytes: u64,
        /// Minimum, in bytes.
        least: u64,
        /// Maximum, in bytes.
        most: u64,
    },
    /// SQLite cannot read or write the file.
    #[error("{}: {source}", .path.display())]
    Store {
        /// The session file.
        path: PathBuf,
        /// SQLite's error.
        source: StoreError,
    },
    /// The system cannot read or write the file.
    #[error("{}: {}", .path.display(), words(.source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn by(holder: Option<u32>) -> String {
    holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl OpenError {
    /// Whether there is no file, or one that cannot be a session of this version, whatever the disk
    /// and other programs do.
    pub fn is_of_content(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::NotSqlite { .. }
            | Self::Encrypted { .. }
            | Self::NotSession { .. }
            | Self::LostWal { .. }
            | Self::OldSpec { .. }
            | Self::Newer { .. }
            | Self::NewerSpec { .. } => true,
            Self::Store { source, .. } => source.kind == StoreErrorKind::Corrupt,
            _ => false,
        }
    }

    /// What the user can do, without the names of commands.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Missing { .. } => "create it, or check the path",
            Self::Denied { .. } => "its owner may open it: do this as that user",
            Self::Exists { .. } => "choose another path; existing files are never overwritten",
            Self::NotFile { .. } => "give the path of a session file",
            Self::NotSqlite { .. } => {
                "give the path of a session file; encrypted databases cannot be opened"
            }
            Self::Encrypted { .. } => "decrypt it with the program that made it first",
            Self::NotSession { .. } => "give the path of a session file, or a path without a file",
            Self::LostWal { .. } => {
                "copy the -wal file here from where the session came from; it holds the data"
            }
            Self::LeftoverWal { .. } => {
                "bring its session file back, or move the WAL away, or choose another path"
            }
            Self::OldSpec { .. } => "migrate it to version 0.4",
            Self::Newer { .. } | Self::NewerSpec { .. } => "open it with a newer acetate",
            Self::CloudSynced { .. } => "export it to a plain database file first",
            Self::Moved { .. } => "use it there, or `acetate pull` it into a new file",
            Self::Replica { .. } => "name the session by its URL",
            Self::InUse { .. } => "stop that server first, or wait until the command has ended",
            Self::NoRoom { .. } => "make room, or move the session to a larger disk",
            Self::ChunkSize { .. } => "65536 suits most sessions",
            Self::NoRoomForCopy { .. } => "make room, or copy to a larger disk",
            Self::Store { source, .. } | Self::Copy { source, .. } => match source.kind {
                StoreErrorKind::Busy => "another program has the session open; stop it first",
                StoreErrorKind::Corrupt => {
                    "make a copy; `sqlite3 FILE .recover` may save what is there"
                }
                StoreErrorKind::Full
                | StoreErrorKind::ReadOnly
                | StoreErrorKind::Io
                | StoreErrorKind::Lost
                | StoreErrorKind::InDoubt => return None,
            },
            Self::Io { .. } => return None,
        })
    }

    pub(in crate::delta::sqlite) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(in crate::delta::sqlite) fn store(path: &Path, source: impl Into<StoreError>) -> Self {
        Self::Store { path: path.to_owned(), source: source.into() }
    }
}

/// Extended code SQLITE_IOERR_SHMSIZE: no space for the shared-memory file. It means a full disk,
/// not a broken one.
const IOERR_SHMSIZE: i32 = 10 | (19 << 8);

/// A plain description, with SQLite's message in parentheses.
fn in_words(code: ErrorCode, error: &rusqlite::Error) -> String {
    let ours = match code {
        ErrorCode::DiskFull => "its disk is full, or its size limit is reached",
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => "another program has its lock",
        ErrorCode::FileLockingProtocolFailed => "another program keeps a lock of its WAL",
        ErrorCode::DatabaseCorrupt => "pages or indexes of the file are damaged",
        ErrorCode::NotADatabase => "the file is no SQLite database, or an encrypted one",
        ErrorCode::ReadOnly => "the file, or its directory, may not be written",
        ErrorCode::CannotOpen => "the file, or one beside it, cannot be opened",
        ErrorCode::PermissionDenied => "permission denied",
        ErrorCode::OutOfMemory => "there is no memory left",
        ErrorCode::SystemIoFailure => "reading or writing the file failed",
        ErrorCode::TooBig => "a value is larger than a row may be",
        ErrorCode::ConstraintViolation => "a row contradicts another one",
        _ => "the database refused it",
    };
    format!("{ours} (SQLite: {error})")
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, text) = match error.sqlite_error() {
            Some(code) => (kind_of(code), in_words(code.code, &error)),
            // Failed conversion of a column.
            None => {
                let text = format!("a row that acetate did not write: {error}");
                (StoreErrorKind::Corrupt, text)
            }
        };
        Self::new(kind, text).with_source(error)
    }
}

fn kind_of(error: &rusqlite::ffi::Error) -> StoreErrorKind {
    match error.code {
        ErrorCode::DiskFull => StoreErrorKind::Full,
        ErrorCode::SystemIoFailure if error.extended_code == IOERR_SHMSIZE => StoreErrorKind::Full,
        // FileLockingProtocolFailed: another program kept a lock of the WAL over all retries.
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => StoreErrorKind::Busy,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreErrorKind::Corrupt,
        ErrorCode::ReadOnly => StoreErrorKind::ReadOnly,
        _ => StoreErrorKind::Io,
    }
}
