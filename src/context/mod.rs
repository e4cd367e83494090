//! Context nodes: knowledge that agents keep about users and themselves. Each node is a directory
//! under `/accounts` with content, summaries, edges, metadata, and an outbox of events for an
//! external index. docs/CONTEXT.md has the layout.
//!
//! [`Nodes`] has one operation per verb, over any tree of files ([`Files`]). It returns data, never
//! prints, and does not know sessions.
//!
//! Every change is atomic, even if the process or the machine crashes: see `change`.

mod change;
mod error;
mod event;
mod files;
pub mod limits;
mod list;
mod meta;
mod node;
mod outbox;
mod put;
mod relate;
mod relation;
mod remove;
mod rename;
mod repair;
mod schema;
mod summary;
mod uri;

pub use error::{ContextError, Result};
pub use event::{Event, EventStamp, EventType};
pub use files::{FileError, Files, NodeDirEntry, Reads};
pub use list::ListedNode;
pub use meta::{NodeMeta, NodeStatus};
pub use node::ContextNode;
pub use outbox::{EventFailure, WaitingEvent};
pub use put::{NodePut, PutOutcome};
pub use relation::{Relation, Relations};
pub use repair::{NodeFault, NodesReport, RepairFinding};
pub use uri::{AccountName, Uri, UriError, UriPrefix};

use files::FileError as Refused;

/// Source of times and randomness.
type Stamps = Box<dyn FnMut() -> Result<EventStamp>>;

/// The nodes in a tree, for a caller.
///
/// A caller with an account is refused any other account. A caller without one owns the tree, and
/// acts as the account that a URI names.
pub struct Nodes<F> {
    files: F,
    account: Option<AccountName>,
    stamps: Stamps,
}

impl<F> Nodes<F> {
    /// The nodes in `files`, for an account.
    pub fn new(files: F, account: Option<AccountName>) -> Self {
        Self::with_stamps(files, account, Box::new(EventStamp::current))
    }

    /// As [`Self::new`], with another source of times and randomness.
    pub fn with_stamps(files: F, account: Option<AccountName>, stamps: Stamps) -> Self {
        Self { files, account, stamps }
    }

    /// Refuses a URI of another account.
    fn check(&self, uri: &Uri) -> Result<()> {
        self.check_account(Some(uri.account()), uri.as_str())
    }

    /// Refuses a prefix of another account.
    fn check_prefix(&self, prefix: &UriPrefix) -> Result<()> {
        self.check_account(prefix.account(), &prefix.to_string())
    }

    fn check_account(&self, named: Option<&str>, uri: &str) -> Result<()> {
        match &self.account {
            Some(own) if named != Some(own.as_str()) => {
                Err(ContextError::Account { uri: uri.to_owned(), account: own.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The prefix of all URIs that the caller may see.
    fn scope(&self) -> UriPrefix {
        self.account.as_ref().map_or_else(UriPrefix::all, UriPrefix::of)
    }

    fn stamp(&mut self) -> Result<EventStamp> {
        (self.stamps)()
    }
}

/// Whether an error means that a document is malformed.
fn is_unfit(error: &ContextError) -> bool {
    match error {
        ContextError::Document { .. } => true,
        ContextError::Files(Refused { is_unfit, .. }) => *is_unfit,
        _ => false,
    }
}
