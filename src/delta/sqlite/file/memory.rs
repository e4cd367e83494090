//! The size bound of a session in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::FsStat;

use super::connect;
use super::disk::byte_len;

/// Maximum size of a session in memory, in bytes: the session file, its WAL and its shared memory
/// together. Clones share the bound.
#[derive(Debug, Clone)]
pub struct MemoryBound(Arc<AtomicU64>);

impl MemoryBound {
    /// A bound of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Changes the bound.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// The bound and the free space below it, in the form of a disk's.
    pub fn usage(&self, path: &Path) -> FsStat {
        let files =
            ["", "-wal", "-shm"].map(|suffix| byte_len(&connect::companion_path(path, suffix)));
        let total_bytes = self.0.load(Ordering::Relaxed);
        let left = total_bytes.saturating_sub(files.iter().sum());
        FsStat {
            total_bytes,
            free_bytes: left,
            available_bytes: left,
            total_files: u64::MAX,
            free_files: u64::MAX,
            available_files: u64::MAX,
        }
    }
}
