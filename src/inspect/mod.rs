//! Tools for sessions, whether a server has them open or not. They return data and never print.
//!
//! Each tool has a file; the subcommand of the same name prints its result. Most tools start from
//! [`opened`]: a session with its base, and a snapshot of the merged tree.

mod agent_rows;
pub mod apply;
pub mod audit_counts;
pub mod between;
pub mod check;
pub mod checkpoint;
mod content;
pub mod counts;
pub mod diff;
pub mod discard;
mod error;
pub mod export;
pub mod find;
pub mod fold;
pub mod hunks;
pub mod ignored_changes;
pub mod json;
pub mod kv;
pub mod log;
pub mod logged_changes;
pub mod maintenance;
pub mod merge;
mod names;
pub mod opened;
pub mod patch;
pub mod quota;
pub mod repair;
pub mod restore;
pub mod restore_call;
pub mod restore_paths;
pub mod seal;
pub mod search;
pub mod selection;
pub mod similar_names;
pub(crate) mod sizes;
mod split;
pub mod status;
pub mod stop;
pub mod text_merge;
pub mod tool;
pub mod tool_owned;
pub mod usage;
pub mod walk;

pub use error::{InspectError, Result};

// What the tools take and return of other layers.
pub use crate::base::{BaseAttr, BaseError, BasePath};
pub use crate::delta::sqlite::{
    AgentAccess, AuditFilter, AuditReader, Breach, Broken, CallBegin, CallBounds, CallFilter,
    CallRow, CallStats, CallStatus, CheckOptions, CheckReport, InvalidRow, KvKey, KvRow,
    MigrateOptions, Migrated, NewCall, NonUtf8Names, OpenError, OpenMode, Order, RepairOptions,
    RepairReport, Session, SessionCopy, SessionStats, ToolCall,
};
pub use crate::delta::{
    AuditProcedure, AuditRow, Compacted, Dropped, Ino, Limits, MergedPath, PendingCopies,
    StoreError, Usage,
};
pub use crate::overlay::{
    BaseObject, Change, CopyStep, DiscardExtent, LostDir, Sealed, TreeObject, TreeView,
    UnchangedCopy,
};
pub use crate::pattern::{Pattern, PatternError, PatternSet};
pub use crate::vfs::{Attr, CallId, Device, FileId, FileKind, FsError, Name, NameError, Time};
pub use crate::writeback::{Attrs, TargetError};
