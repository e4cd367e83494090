//! Requests to the server of an exports file, and its answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Exports in one answer to [`ExportsRequest::List`].
pub const MAX_LISTED_EXPORTS: usize = 4096;

/// A request to the server of an exports file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportsRequest {
    /// Reads the exports file and `exports.d` again, as SIGHUP does. The answer is
    /// [`ExportsAnswer::Reloaded`], or a refusal: then all is served as before.
    Reload {
        /// The name of an export that was added: if it cannot be opened, that is a refusal.
        added: Option<String>,
    },
    /// Lists exports, by path. The answer is [`ExportsAnswer::Listed`].
    List {
        /// Only paths after this one.
        after: Option<String>,
    },
    /// Asks how sessions are used. The answer is [`ExportsAnswer::Uses`].
    Uses {
        /// Real paths of session files.
        sessions: Vec<PathBuf>,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportsAnswer {
    /// The files were read.
    Reloaded {
        /// The number of exports that are served.
        exports: usize,
    },
    /// At most [`MAX_LISTED_EXPORTS`] exports.
    Listed {
        /// The exports, by path.
        exports: Vec<ExportText>,
        /// Whether there are more after the last one.
        is_more: bool,
    },
    /// The uses of the sessions, in the order of the request.
    Uses(Vec<SessionUse>),
}

/// An export of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportText {
    /// Its name.
    pub name: String,
    /// What clients mount; `None` if its token does not exist yet.
    pub path: Option<String>,
    /// The file that has it, or that has its template.
    pub file: PathBuf,
    /// The template that made it.
    pub template: Option<String>,
    /// `open`, `closed` or `unavailable`; `None` if no server tells.
    pub state: Option<String>,
    /// When it is removed, if a template made it.
    pub expiry: Option<ExpiryText>,
}

/// When an instance of a template is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryText {
    /// The template's `expire`, in seconds.
    pub expire_secs: Option<u64>,
    /// Whether it stays however long nothing uses it.
    pub is_kept: bool,
    /// Time until it may be removed if nothing uses it, in seconds; `None` while it is used or
    /// kept, and without `expire`.
    pub left_secs: Option<u64>,
}

/// How a session is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionUse {
    /// The server does not have it open.
    Closed,
    /// The server has it open.
    Open,
    /// A command uses it through the server.
    InUse,
}
