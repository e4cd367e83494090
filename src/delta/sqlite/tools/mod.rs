//! Offline tools, and readers beside a server. The server's request path does not use them.

pub mod agent;
pub mod audit;
pub mod audit_filter;
pub mod backup;
pub mod check;
pub mod checkpoints;
pub mod compact;
pub mod copied_up;
pub mod fork;
pub mod identity;
pub mod instance_removals;
pub mod instances;
pub mod kv;
mod log_keep;
pub mod migrate;
pub mod new_file;
pub mod quota;
pub mod removal;
pub mod repair;
pub mod sparse;
pub mod stats;
pub mod steps_back;
pub mod tool_call;
