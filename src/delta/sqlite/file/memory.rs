//! The size bound of a session in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::FsStat;

use super::connect;
use super::disk::byte_len;

/// The bytes that the files of a session in memory may take together: the session and its
/// write-ahead log. A copy is of the same bound.
#[derive(Debug, Clone)]
pub struct MemoryBound(Arc<AtomicU64>);

impl MemoryBound {
    /// A bound of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Bounds the session by so many bytes from now on.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// How full the files of the session `path` are, as if they were a disk.
    pub fn usage(&self, path: &Path) -> FsStat {
        let files = ["", "-wal", "-shm"].map(|suffix| byte_len(&connect::beside(path, suffix)));
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
