//! Sessions in SQLite files: all the SQL of the crate, one file per table.
//!
//! [`Session`] opens or creates the file and hands out connections; the rest turns the typed
//! row operations of [`crate::delta`] into statements. docs/SCHEMA.md describes the tables and
//! numbers the invariants that the comments here cite.
//!
//! Nothing here knows what rows mean together: merging is the overlay's business, and when to
//! commit is the worker's.

mod absent;
mod agent;
mod at_hand;
mod audit;
mod audit_bound;
mod backup;
mod batch;
mod beside;
mod check;
mod chunk;
mod compact;
mod config;
mod connect;
mod copied_up;
mod copy_up;
mod copying;
mod create;
mod dentry;
mod disk;
mod epoch;
mod error;
mod figures;
mod gather;
mod hide;
mod host;
mod inode;
mod kv;
mod link;
mod lock;
mod log;
mod log_keep;
mod meta;
mod migrate;
mod names;
mod number;
mod op;
mod opaque;
mod open;
mod origin;
mod original;
mod past;
mod probe;
mod prune;
mod quota;
mod reader;
mod redirect;
mod repair;
mod room;
mod rows;
mod schema;
mod sequence;
mod session;
mod snapshot;
mod sparse;
mod symlink;
mod tool_call;
mod value;
mod whiteout;
mod writer;

/// Ends the name of the socket beside a served session.
pub const CONTROL_SUFFIX: &str = "-control";

pub use agent::{Access, AgentTables};
pub use audit::{AuditFilter, AuditPage, AuditReader, Client, Mention, OddRow, Order};
pub use backup::Copied;
pub use check::{Breach, Broken, CheckOptions, Checked, INTEGRITY, Pending, RULES};
pub use copied_up::{CopiedUp, HostFile, Uncopied};
pub use create::{ChunkSize, CreateOptions, RootAttr};
pub use error::OpenError;
pub use figures::Figures;
pub use hide::MAX_HIDDEN_PATTERNS;
pub use host::Host;
pub use kv::{KvKey, KvRow};
pub use log_keep::LogKeep;
pub use migrate::{MigrateOptions, Migrated, SPEC_VERSION, Step};
pub use repair::{AskBase, Listed, Mended, RepairOptions, Repaired};
pub use room::MemoryBound;
pub use session::{ExposedFile, LOG_SUFFIXES, OpenMode, Session, session_files};
pub use sparse::OddNames;
pub use tool_call::{CallFilter, CallRow, CallStats, CallStatus, NewCall, ToolCall};
