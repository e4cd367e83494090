//! How long the WAL is, and how much of it is checkpointed: shared by the writer, its background
//! thread, and figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The WAL of an open session, as of its writer's last commit.
#[derive(Debug, Default)]
pub(in crate::delta::sqlite) struct WalProgress {
    /// Pages in the WAL; its file may be longer.
    pages: Arc<AtomicU32>,
    /// Pages of these that the last checkpoint found copied into the database.
    copied: AtomicU32,
    /// Size of a frame (header and page), in bytes.
    frame_bytes: AtomicU64,
}

impl WalProgress {
    /// Frames of `frame_bytes` bytes.
    pub fn begin(&self, frame_bytes: u64) {
        self.frame_bytes.store(frame_bytes, Ordering::Relaxed);
    }

    /// The count of pages, to be set after each commit.
    pub fn pages(&self) -> &Arc<AtomicU32> {
        &self.pages
    }

    /// Records how many pages are copied.
    pub fn note_copied(&self, pages: u32) {
        self.copied.store(pages, Ordering::Relaxed);
    }

    /// Pages that are not copied.
    pub fn left_pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed).saturating_sub(self.copied.load(Ordering::Relaxed))
    }

    /// Length of all frames, in bytes.
    pub fn bytes(&self) -> u64 {
        let pages = self.pages.load(Ordering::Relaxed);
        u64::from(pages) * self.frame_bytes.load(Ordering::Relaxed)
    }

    /// Length of the frames that are not copied, in bytes.
    pub fn left_bytes(&self) -> u64 {
        u64::from(self.left_pages()) * self.frame_bytes.load(Ordering::Relaxed)
    }
}
