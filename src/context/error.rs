//! Why something was not done to a context node.

use super::files::FileError;
use super::meta::NodeStatus;
use super::uri::{Uri, UriError};

/// A failure of an operation on context nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A text is no URI.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// Another account's.
    #[error("{uri}: not of the account {account}")]
    Account {
        /// What was asked for.
        uri: String,
        /// The caller's account.
        account: String,
    },
    /// No node is visible there.
    #[error("{uri}: no such node{}", .status.map(|s| format!(" (it is {s})")).unwrap_or_default())]
    NoNode {
        /// Where.
        uri: Uri,
        /// The status of what is there all the same.
        status: Option<NodeStatus>,
        /// Whether somebody is changing it, or ended while doing so.
        is_changing: bool,
    },
    /// Something is in the way.
    #[error("{uri}: {what}")]
    InTheWay {
        /// Where.
        uri: Uri,
        /// What.
        what: &'static str,
    },
    /// A document of a node is not valid.
    #[error("{path}: {what}")]
    Document {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// What was given is not valid.
    #[error("{what}")]
    Invalid {
        /// What is not.
        what: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// The files below fail.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The system gives no random bytes.
    #[error("cannot get random bytes: {0}")]
    Random(std::io::Error),
}

/// The result of an operation on context nodes.
pub type Result<T> = std::result::Result<T, ContextError>;

impl ContextError {
    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: None }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Account { .. } => Some("the account in a URI must be the caller's"),
            Self::NoNode { is_changing: true, .. } => Some(
                "a change of it is under way, or was broken off; `acetate ctx repair SESSION.db` \
                 finishes what was broken off",
            ),
            Self::NoNode { status: Some(NodeStatus::Pending), .. } => {
                Some("`acetate ctx repair SESSION.db` completes it if all of it is there")
            }
            Self::NoNode { status: Some(NodeStatus::Broken), .. } => {
                Some("put it again, or remove it")
            }
            Self::Document { .. } => Some("mend the file through a mount, or remove the node"),
            Self::Invalid { hint, .. } => *hint,
            Self::Files(error) => error.hint.as_deref(),
            _ => None,
        }
    }
}
