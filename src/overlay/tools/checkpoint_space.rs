//! Frees what removed checkpoints leave, and bounds what all of them take, in the background.
//!
//! What is to be removed is looked for on a snapshot, so that no change waits for it. Each removal
//! and each piece that is freed is one short operation in the writer's queue.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::delta::CheckpointSpace;
use crate::vfs::FsError;
use crate::worker::{Background, BackgroundPiece, Cost};

use crate::overlay::Overlay;
use crate::overlay::error::{from_store, from_work};

/// Time after the opening of a session until the first look: nothing waits for it. The first calls
/// and the look for copies have the connection for reads by then, and it is not at rest yet.
const FIRST_LOOK_AFTER: Duration = Duration::from_millis(1500);

/// Saved rows that are freed in one operation: bounds how long clients' changes wait.
const PIECE_ROWS: u32 = 256;

/// State of the background work.
#[derive(Debug, Default)]
pub(in crate::overlay) struct CheckpointBound {
    pub background: Background,
    /// How many checkpoints there were when it was last logged that none can be freed.
    logged: AtomicI64,
}

impl Overlay {
    /// What the session's checkpoints take; `None` without any.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn checkpoint_space(&self) -> Result<Option<CheckpointSpace>, FsError> {
        let looked = self.worker.read(Cost::Offload, |txn| txn.checkpoint_space()).await;
        looked.map_err(|error| from_work(&error))?.map_err(|error| from_store(&error))
    }

    /// Frees what removed checkpoints leave, and removes the oldest automatic ones while too much
    /// is saved. Returns only when the session accepts no more changes.
    pub async fn bound_checkpoints_in_background(&self) {
        self.core.checkpoint_bound.background.begin_after(FIRST_LOOK_AFTER).await;
        loop {
            let piece = match self.bound_checkpoints_piece().await {
                Ok(true) => BackgroundPiece::More,
                Ok(false) => BackgroundPiece::Idle,
                Err(FsError::ReadOnly) => BackgroundPiece::Finished,
                Err(_) => BackgroundPiece::Failed,
            };
            if !self.core.checkpoint_bound.background.next_after(piece).await {
                return;
            }
        }
    }

    /// The same until nothing is left to do.
    ///
    /// # Errors
    /// The session cannot be read or written.
    pub async fn bound_checkpoints(&self) -> Result<(), FsError> {
        while self.bound_checkpoints_piece().await? {}
        Ok(())
    }

    /// Frees one piece of what removed checkpoints leave; returns whether there may be more.
    pub(super) async fn free_removed(&self) -> Result<bool, FsError> {
        self.change_rows(false, |txn| txn.free_removed(PIECE_ROWS)).await
    }

    /// One step; returns whether there may be more to do.
    async fn bound_checkpoints_piece(&self) -> Result<bool, FsError> {
        let Some(space) = self.checkpoint_space().await? else { return Ok(false) };
        if space.has_removed {
            return self.free_removed().await.map(|_| true);
        }
        if let Some(id) = space.removable {
            self.change_rows(false, move |txn| txn.remove_checkpoint(id)).await?;
            tracing::info!(id = id.0, space.saved_bytes, space.max_bytes, "removed a checkpoint");
            return Ok(true);
        }
        let count = i64::try_from(space.checkpoints).unwrap_or(i64::MAX);
        let logged = &self.core.checkpoint_bound.logged;
        if space.is_stuck() && logged.swap(count, Ordering::Relaxed) != count {
            tracing::warn!(
                space.saved_bytes,
                space.max_bytes,
                "checkpoints take more than they may, and removing an automatic one frees nothing"
            );
        }
        Ok(false)
    }
}
