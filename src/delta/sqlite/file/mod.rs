//! The session file: creating, probing, opening, locking and connecting to it.
//!
//! Also the boot epoch, which records whether unsynced data may have been lost, and the list of
//! files that belong to a session.

pub mod config;
pub mod connect;
pub mod create;
pub mod disk;
pub mod epoch;
pub mod error;
pub mod following_replica;
pub mod host;
pub mod lock;
pub mod memory;
pub mod open;
pub mod probe;
pub mod replica;
pub mod rewrite;
pub mod session;
pub(super) mod wal_progress;
