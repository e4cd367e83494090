//! When the WAL is synced and copied into the database, and how full the disk may get.
//!
//! Decides when, never what: nothing here reads or writes a row.

pub mod background;
pub mod checkpointer;
pub mod disk_reserve;
pub mod schedule;
