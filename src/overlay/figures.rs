//! What a server reports of a session.

use crate::counters::Cache;
use crate::delta::WalSize;

use super::Overlay;

/// The state of an open session at one moment.
#[derive(Debug, Clone)]
pub struct SessionFigures {
    /// Entries of its caches.
    pub cache_entries: [(Cache, usize); 5],
    /// Size of its WAL.
    pub wal: WalSize,
    /// Whether every change is refused.
    pub is_read_only: bool,
    /// Whether the writer has been in one operation for too long.
    pub is_writer_stuck: bool,
    /// Whether the writer thread has ended.
    pub has_writer_ended: bool,
}

impl Overlay {
    /// The current state. Waits for nothing but the disk, which it asks for the size of the WAL.
    pub fn figures(&self) -> SessionFigures {
        SessionFigures {
            cache_entries: self.core.caches.entries(),
            wal: self.store.wal_size(),
            is_read_only: self.core.is_read_only() || self.worker.is_read_only(),
            is_writer_stuck: self.worker.is_writer_stuck(),
            has_writer_ended: self.worker.has_ended(),
        }
    }
}
