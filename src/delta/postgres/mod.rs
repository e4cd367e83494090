//! Sessions in PostgreSQL.
//!
//! The rows in the database are the session. The server that holds the session's lease has a
//! *replica*, a session file with the same rows, from which it reads. A batch of changes is kept in
//! the database first, by one statement that also checks the lease, and in the replica second; so
//! a replica with a batch mark has nothing that the database lacks.
//! What a command changes before the writer is open takes the mark away first: after a crash in
//! between, the replica is made again.

mod agent;
mod change;
mod connect;
mod figures;
mod follow;
mod hold;
mod lease;
mod listed;
mod passwords;
mod renewal;
mod schema;
mod session;
mod ship;
pub mod statement;
mod store;
mod url;
mod views;

pub use agent::DatabaseAgentTables;
pub use connect::{DatabaseConnectError, connect};
pub use figures::{LeaseFigures, lease_figures};
pub use follow::{Followed, catch_up, follow};
pub use hold::{Hold, HoldError, HoldOptions};
pub use lease::{HeldLease, LeaseRow, LeaseTime, LeaseWatch};
pub use listed::{ListedSession, list};
pub use passwords::use_home;
pub use renewal::LeaseRenewals;
pub use schema::{check_rights, check_schema, prepare_schema};
pub use session::{
    SessionError, SessionInDatabase, SessionRow, SessionState, download, find, hydrate, identities,
    record_move, release, renew, session_id, session_state, take, upload,
};
pub use ship::{HeldSession, Shipper};
pub use store::PostgresStore;
pub use url::{DatabasePlace, SchemaName, SessionUrl, UrlError, without_password};
