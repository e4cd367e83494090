//! Read and write transactions, as the worker uses them.

pub mod batch;
pub mod negative_cache;
pub mod reader;
mod restore;
mod saved_room;
pub mod snapshot;
pub mod writer;
pub mod writer_token;
