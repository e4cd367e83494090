//! Errors of the store.

/// A failure of the upper layer. The message has the details; callers decide by the kind.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk or the session's size limit is full. Nothing was changed.
    #[error("no space left for the session: {0}")]
    Full(String),
    /// Another process holds the session's write lock for longer than the busy timeout.
    #[error("the session is locked by another process: {0}")]
    Busy(String),
    /// The session file cannot be written.
    #[error("the session is read-only: {0}")]
    ReadOnly(String),
    /// Rows contradict each other, or SQLite reports that the file is damaged.
    #[error("the session is corrupt: {0}")]
    Corrupt(String),
    /// Any other I/O failure of the file.
    #[error("cannot access the session: {0}")]
    Io(String),
}
