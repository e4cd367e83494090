//! Context nodes: what agents keep about users and themselves, each a directory under
//! `/accounts` with its content, summaries, edges and metadata, and an outbox for whoever keeps an
//! index of them. docs/CONTEXT.md has the layout.
//!
//! [`Nodes`] has an operation for each verb, over any tree of files ([`Files`]): it returns data
//! and never prints, and knows nothing of sessions.
//!
//! Every change is whole or not there, whenever the process or the machine ends: `change` says
//! how.

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

/// Where moments and randomness come from.
type Stamps = Box<dyn FnMut() -> Result<EventStamp>>;

/// The nodes in a tree, for a caller.
///
/// Where the caller has an account, every other account is refused. Where he has none, he acts
/// as whichever account a URI names: he owns the tree.
pub struct Nodes<F> {
    files: F,
    account: Option<AccountName>,
    stamps: Stamps,
}

impl<F> Nodes<F> {
    /// Those in `files`, for this account.
    pub fn new(files: F, account: Option<AccountName>) -> Self {
        Self::with_stamps(files, account, Box::new(EventStamp::current))
    }

    /// The same with another clock.
    pub fn with_stamps(files: F, account: Option<AccountName>, stamps: Stamps) -> Self {
        Self { files, account, stamps }
    }

    /// Refuses the URI of another account.
    fn check(&self, uri: &Uri) -> Result<()> {
        self.check_account(Some(uri.account()), uri.as_str())
    }

    /// The same for what is below a prefix.
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

    /// All that the caller may see.
    fn scope(&self) -> UriPrefix {
        self.account.as_ref().map_or_else(UriPrefix::all, UriPrefix::of)
    }

    fn stamp(&mut self) -> Result<EventStamp> {
        (self.stamps)()
    }
}

/// Whether a failure says of a document that it is not what it should be.
fn is_unfit(error: &ContextError) -> bool {
    match error {
        ContextError::Document { .. } => true,
        ContextError::Files(Refused { is_unfit, .. }) => *is_unfit,
        _ => false,
    }
}
