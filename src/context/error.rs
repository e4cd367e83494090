//! Errors of operations on context nodes.

use super::files::FileError;
use super::meta::NodeStatus;
use super::uri::{Uri, UriError};

/// An error of an operation on context nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A text is not a URI.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The URI belongs to another account.
    #[error("{uri}: not of the account {account}")]
    Account {
        /// The requested URI.
        uri: String,
        /// The caller's account.
        account: String,
    },
    /// No node is visible at the URI.
    #[error("{uri}: no such node{}", .status.map(|s| format!(" (it is {s})")).unwrap_or_default())]
    NoNode {
        /// The URI.
        uri: Uri,
        /// Status of a node that exists but is not visible.
        status: Option<NodeStatus>,
        /// Whether a change is in progress or was interrupted.
        is_changing: bool,
    },
    /// Another object or node is in the way.
    #[error("{uri}: {what}")]
    InTheWay {
        /// The URI.
        uri: Uri,
        /// What is in the way.
        what: &'static str,
    },
    /// A document of a node is invalid.
    #[error("{path}: {what}")]
    Document {
        /// The file.
        path: String,
        /// The error.
        what: String,
    },
    /// The content of a node has no line from which an abstract could be made.
    #[error("the content has no line to make the abstract of")]
    NoAbstract,
    /// Events of a removed node are not acknowledged, so nothing can be put in its place.
    #[error("{uri}: events of what was there are not acknowledged yet")]
    Unacknowledged {
        /// The URI.
        uri: Uri,
    },
    /// The input is invalid.
    #[error("{what}")]
    Invalid {
        /// The error.
        what: String,
        /// How to resolve it.
        hint: Option<&'static str>,
    },
    /// An operation of the file tree failed.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The system provides no random bytes.
    #[error("cannot get random bytes: {0}")]
    Random(std::io::Error),
}

/// Result type of this module.
pub type Result<T> = std::result::Result<T, ContextError>;

impl ContextError {
    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: None }
    }

    /// How to resolve the error, without the names of commands.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Account { .. } => Some("the account in a URI must be the caller's"),
            Self::NoNode { is_changing: true, .. } => Some(
                "a change of it is under way, or was broken off; a repair finishes what was \
                 broken off",
            ),
            Self::NoNode { status: Some(NodeStatus::Pending), .. } => {
                Some("a repair completes it if all of it is there")
            }
            Self::NoNode { status: Some(NodeStatus::Broken), .. } => {
                Some("put it again, or remove it")
            }
            Self::Document { .. } => Some("mend the file through a mount, or remove the node"),
            Self::Invalid { hint, .. } => *hint,
            Self::NoAbstract => Some("give one"),
            Self::Unacknowledged { .. } => Some("acknowledge them first"),
            Self::Files(error) => error.hint.as_deref(),
            _ => None,
        }
    }
}
