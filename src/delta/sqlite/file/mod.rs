//! The session file: created, probed, opened, locked, and the connections to it.
//!
//! Knows when unsynced data may have been lost (the boot epoch) and which files a session has.

pub mod config;
pub mod connect;
pub mod create;
pub mod disk;
pub mod epoch;
pub mod error;
pub mod host;
pub mod lock;
pub mod memory;
pub mod open;
pub mod probe;
pub mod rewrite;
pub mod session;
