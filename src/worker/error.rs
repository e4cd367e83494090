//! Why the worker could not run an operation or keep its changes.

use crate::delta::StoreError;

/// A failure outside of the operation itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkError {
    /// The store failed; nothing of the operation was kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An earlier I/O error or corruption made the session read-only until it is reopened.
    #[error("the session is read-only since an earlier error")]
    ReadOnly,
    /// The operation panicked; it was rolled back.
    #[error("the operation panicked")]
    Panicked,
    /// All threads that could do it are stuck.
    #[error("all threads are stuck")]
    Stuck,
    /// The worker is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}
