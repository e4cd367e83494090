//! Much content that a change takes away is saved for the newest checkpoint before the change, in
//! pieces. Each is a transaction of its own, so the changes of others come between.
//!
//! What is saved early is what the change would save (invariant K1). So if the change is not made
//! after all, some content is saved that need not be, and nothing else.

use crate::delta::{InodeRow, UnsavedContent, WriteTxn};
use crate::worker::{Cost, OpResult};

use super::Overlay;
use super::edit::Edit;
use super::error::{OpError, Result};
use super::limits::{SAVED_AT_ONCE_BYTES, SAVED_PIECE_BYTES};

/// Size of a piece in the writer's queue, besides its data, in bytes.
const PIECE_OVERHEAD_BYTES: usize = 512;

/// Fails with [`OpError::Unsaved`] if a change takes away much of a file beyond the byte `kept`
/// that is not saved for the newest checkpoint.
pub(super) fn require_saved(edit: &mut Edit<'_>, row: &InodeRow, kept: u64) -> Result<()> {
    if !edit.saves_first || row.size.saturating_sub(kept) <= SAVED_AT_ONCE_BYTES {
        return Ok(());
    }
    let first = kept.div_ceil(edit.txn.chunk_bytes());
    let content = UnsavedContent { ino: row.ino, first };
    if edit.txn.has_unsaved(content, SAVED_AT_ONCE_BYTES)? {
        edit.unsaved = Some(content);
        return Err(OpError::Unsaved);
    }
    Ok(())
}

impl Overlay {
    /// Saves content for the newest checkpoint; returns whether all of it is saved. Without room,
    /// it is not: the change that takes the content away makes room.
    pub(super) async fn save_content(&self, content: UnsavedContent) -> bool {
        let mut left = Some(content);
        while let Some(content) = left {
            let job = move |txn: &mut dyn WriteTxn| {
                let value = txn.save_content(content, SAVED_PIECE_BYTES);
                OpResult { commit: value.is_ok(), value, after_commit: None }
            };
            let bytes = SAVED_PIECE_BYTES + PIECE_OVERHEAD_BYTES;
            match self.worker.write(Cost::Offload, bytes, false, job).await {
                Ok(saved) => match saved.value {
                    Ok(rest) => left = rest,
                    Err(error) => {
                        tracing::debug!(%error, "content is not saved before it goes");
                        return false;
                    }
                },
                // The change fails in the same way.
                Err(_) => return false,
            }
        }
        true
    }
}
