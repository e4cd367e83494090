//! Sessions in SQLite files: all the SQL of the crate, one file per table.
//!
//! [`Session`] opens or creates the file and hands out connections; the other modules implement the
//! typed row operations of [`crate::delta`]. docs/SCHEMA.md describes the tables and numbers the
//! invariants that the comments here cite.
//!
//! Nothing here merges rows into a tree (the overlay does) or decides when to commit (the worker
//! does).

mod file;
mod store;
mod table;
mod tools;
mod txn;
mod wal;

pub use file::create::{ChunkSize, CreateOptions, RootAttr, absolute, name_new};
pub use file::error::OpenError;
pub use file::following_replica::{FollowingReplica, set_aside};
pub use file::host::Host;
pub use file::memory::MemoryBound;
pub use file::replica::{AboutReplica, NewReplica};
pub use file::session::{
    CONTROL_SUFFIX, ExposedFile, LOG_SUFFIXES, OpenMode, Session, session_files,
};
pub use table::call_bounds::{CallBegin, CallBounds};
pub use table::hide::MAX_HIDDEN_PATTERNS;
pub use table::log_keep::LogKeep;
pub use table::replica::{
    BatchMark, CellColumn, ColumnKind, NotedRows, RowNotes, SessionColumn, SessionTable, TableRows,
    session_tables,
};
pub use table::schema::SPEC_VERSION;
pub use table::undone_rows::{RowRemains, UndoneRows};
pub use tools::agent::{AgentAccess, AgentTables};
pub use tools::audit::{AuditPage, AuditReader, InvalidRow, MentionedNames, Order};
pub use tools::audit_filter::{AuditFilter, ChangeSource};
pub use tools::check::{
    Breach, Broken, CheckOptions, CheckReport, INTEGRITY, Pending, RULES, RedirectedDir,
};
pub use tools::checkpoints::ListedCheckpoint;
pub use tools::copied_up::{CopiedFileId, CopiedUp};
pub use tools::identity::{SessionIdentity, identity_at_rest};
pub use tools::instance_removals::{
    PendingDeletion, RemovalStart, RemovedSessions, UnusedSession, delete_renamed, rename_away,
    rename_back,
};
pub use tools::instances::{InstanceRegistry, RegisteredInstance, SessionKeys, keep_instance};
pub use tools::kv::{KvKey, KvRow};
pub use tools::migrate::{MigrateOptions, Migrated, MigrationStep};
pub use tools::new_file::SessionCopy;
pub use tools::removal::{is_in_use, is_session, remove_session};
pub use tools::repair::{AskBase, BaseListing, RepairOptions, RepairReport, Repairs};
pub use tools::sparse::NonUtf8Names;
pub use tools::stats::SessionStats;
pub use tools::steps_back::{RestoreTakenBack, StepsBack};
pub use tools::tool_call::{CallFilter, CallRow, CallStats, CallStatus, NewCall, ToolCall};
pub(in crate::delta) use txn::writer::SqliteWriter;
