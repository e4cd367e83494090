//! Errors of overlay operations, and their mapping to [`FsError`].

use crate::base::BaseError;
use crate::delta::{StoreError, StoreErrorKind};
use crate::vfs::FsError;
use crate::worker::WorkError;

/// Why an operation of the overlay failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpError {
    /// An ordinary result such as "not found", not a fault.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Content that an unfinished copy-up still reads from the base has changed or is missing
    /// there. Logged where it is found.
    #[error("the base file of an unfinished copy-up is not what it was")]
    Lost,
    /// Much content is to be saved for a checkpoint before the change takes it away. The change is
    /// made again afterwards.
    #[error("content is to be saved for a checkpoint first")]
    Unsaved,
    /// The lower layer failed.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// The upper layer failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The result of a step of an operation.
pub(super) type Result<T> = std::result::Result<T, OpError>;

impl OpError {
    /// Whether the base, or a directory above an object, denies access to it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Base(BaseError::Denied) | Self::Fs(FsError::Access))
    }

    /// The error for the caller. Faults that need the operator are logged here, once.
    pub fn into_fs(self) -> FsError {
        match self {
            Self::Fs(error) => error,
            Self::Lost => FsError::Io,
            Self::Unsaved => FsError::TryLater,
            Self::Base(error) => from_base(&error),
            Self::Store(error) => from_store(&error),
        }
    }
}

impl From<crate::vfs::NameError> for OpError {
    fn from(error: crate::vfs::NameError) -> Self {
        Self::Fs(error.into())
    }
}

/// NotFound and Changed become Stale: the object vanished between lookup and use.
fn from_base(error: &BaseError) -> FsError {
    match error {
        BaseError::NotFound | BaseError::Changed => FsError::Stale,
        BaseError::Denied => FsError::Access,
        BaseError::WrongKind => FsError::Invalid,
        BaseError::Busy | BaseError::Unresponsive => FsError::TryLater,
        BaseError::Io(_) => {
            tracing::error!(%error, "cannot read the base");
            FsError::Io
        }
    }
}

pub(super) fn from_store(error: &StoreError) -> FsError {
    match error.kind {
        StoreErrorKind::Full => {
            tracing::warn!(%error, "no space for the session");
            FsError::NoSpace
        }
        StoreErrorKind::Busy => {
            tracing::warn!(%error, "the session is locked");
            FsError::TryLater
        }
        StoreErrorKind::ReadOnly => FsError::ReadOnly,
        // The client repeats the call, at the server that has the session.
        StoreErrorKind::Lost | StoreErrorKind::InDoubt => FsError::TryLater,
        StoreErrorKind::Corrupt | StoreErrorKind::Io => {
            tracing::error!(%error, "cannot read or write the session");
            FsError::Io
        }
    }
}

/// Whether a change is perhaps made, and the server can never know.
pub(super) fn is_in_doubt(error: &WorkError) -> bool {
    matches!(error, WorkError::Store(error) if error.kind == StoreErrorKind::InDoubt)
}

/// The error for the caller when the worker did not run, or did not commit, its operation.
pub(super) fn from_work(error: &WorkError) -> FsError {
    match error {
        WorkError::Store(error) => from_store(error),
        WorkError::ReadOnly => FsError::ReadOnly,
        WorkError::Panicked => FsError::Fault,
        WorkError::Stuck | WorkError::ShuttingDown => FsError::TryLater,
    }
}
