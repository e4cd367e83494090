//! What can go wrong in the store.

/// A failure of the upper layer. Details are in the message; the kind decides what follows.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk or the session's size limit is full; nothing was changed.
    #[error("no space left for the session: {0}")]
    Full(String),
    /// Another process holds the session's write lock for too long.
    #[error("the session is locked by another process: {0}")]
    Busy(String),
    /// The session file cannot be written.
    #[error("the session is read-only: {0}")]
    ReadOnly(String),
    /// Rows contradict each other, or SQLite says that the file is damaged.
    #[error("the session is corrupt: {0}")]
    Corrupt(String),
    /// Any other failure of the file below.
    #[error("cannot access the session: {0}")]
    Io(String),
}
