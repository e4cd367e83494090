//! Read and write transactions, as the worker uses them.

pub mod batch;
pub mod negative_cache;
pub mod reader;
pub mod snapshot;
pub mod writer;
