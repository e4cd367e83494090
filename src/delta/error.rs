//! Errors of the store.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a failure of the store means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The disk or the session's size limit is full. Nothing was changed.
    Full,
    /// Another process holds the session's write lock for longer than the busy timeout.
    Busy,
    /// The session file cannot be written.
    ReadOnly,
    /// Rows contradict each other, or SQLite reports that the file is damaged.
    Corrupt,
    /// Any other I/O failure of the file.
    Io,
    /// Another server has the session. Nothing was changed: a client that repeats its call reaches
    /// the other server.
    Lost,
    /// Another server has the session, and whether it has the change is not known: neither success
    /// nor failure may be answered.
    InDoubt,
}

impl StoreErrorKind {
    /// Whether what was written before the failure may be lost or damaged.
    pub fn leaves_doubt(self) -> bool {
        match self {
            Self::Corrupt | Self::Io => true,
            Self::Full | Self::Busy | Self::ReadOnly | Self::Lost | Self::InDoubt => false,
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no space left for the session",
            Self::Busy => "the session is locked by another process",
            Self::ReadOnly => "the session is read-only",
            Self::Corrupt => "the session is corrupt",
            Self::Io => "cannot access the session",
            Self::Lost => "the session is lost",
            Self::InDoubt => "the session is lost, with or without the change",
        })
    }
}

/// A failure of the upper layer. Callers decide by the kind; the message has the details, with the
/// text of the cause.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// What the failure means.
    pub kind: StoreErrorKind,
    message: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

// By hand: thiserror would return the `Arc`, in which a caller does not find the cause's type.
impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl StoreError {
    /// A failure of a kind. The message does not repeat the kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// A failure of the kind [`StoreErrorKind::Full`].
    pub fn full(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StoreErrorKind::Full, message)
    }

    /// A failure of the kind [`StoreErrorKind::Busy`].
    pub fn busy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StoreErrorKind::Busy, message)
    }

    /// A failure of the kind [`StoreErrorKind::ReadOnly`].
    pub fn read_only(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StoreErrorKind::ReadOnly, message)
    }

    /// A failure of the kind [`StoreErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StoreErrorKind::Corrupt, message)
    }

    /// A failure of the kind [`StoreErrorKind::Io`].
    pub fn io(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StoreErrorKind::Io, message)
    }

    /// The same failure with its cause.
    pub fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// The details, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }
}
