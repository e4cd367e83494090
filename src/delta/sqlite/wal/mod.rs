//! When the WAL is synced and checkpointed, and how much free disk space is reserved.
//!
//! Scheduling only: nothing here reads or writes a row.

pub mod background;
pub mod checkpointer;
pub mod disk_reserve;
pub mod schedule;
