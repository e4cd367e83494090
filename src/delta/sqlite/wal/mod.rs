//! When the WAL is synced and checkpointed, and how much free disk space is reserved.
//!
//! Nothing here reads or writes a row.

pub mod background;
pub mod checkpointer;
pub mod disk_reserve;
pub mod frames;
pub mod schedule;
