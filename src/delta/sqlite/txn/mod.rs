//! Read and write transactions, as the worker uses them.

pub mod batch;
pub mod negative_cache;
mod noted;
pub mod reader;
mod restore;
mod saved_room;
pub mod snapshot;
mod synced;
pub mod writer;
pub mod writer_token;
