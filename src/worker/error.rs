//! Errors of the worker: why an operation did not run or its changes were not kept.

use crate::delta::StoreError;

/// A failure outside the operation itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkError {
    /// The store failed; none of the operation's changes is kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session has no writer: it was opened read-only, is closed, or had a fatal error.
    #[error("the session is read-only since an earlier error")]
    ReadOnly,
    /// The operation panicked and was rolled back.
    #[error("the operation panicked")]
    Panicked,
    /// All reads that the session may run at once are stuck.
    #[error("all threads are stuck")]
    Stuck,
    /// The worker is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}
