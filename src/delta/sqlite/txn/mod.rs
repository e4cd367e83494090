//! Read and write transactions, as the worker uses them.

pub mod batch;
pub mod inode_cache;
pub mod name_cache;
pub mod negative_cache;
pub mod reader;
pub mod snapshot;
pub mod writer;
pub mod writer_cache;
