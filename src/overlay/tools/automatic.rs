//! Checkpoints that the server makes by itself: after changes, once the clients are quiet.
//!
//! A timer runs only after a change. The checkpoint is one operation in the writer's queue; whether
//! anything changed since the newest one is read from the audit log. It is not synced: it is lost
//! only together with the changes before it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::delta::{CheckpointKind, MadeCheckpoint, NewCheckpoint};
use crate::vfs::{FsError, Time};
use crate::worker::QuietGap;

use crate::overlay::Overlay;

/// Which checkpoints a server makes without a user asking for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutomaticCheckpoints {
    /// Whether commands get one before they begin.
    pub for_commands: bool,
    /// One is made after changes that were followed by no other for this long.
    pub idle: Option<Duration>,
}

impl Default for AutomaticCheckpoints {
    fn default() -> Self {
        Self { for_commands: true, idle: None }
    }
}

impl AutomaticCheckpoints {
    /// None at all.
    pub const OFF: Self = Self { for_commands: false, idle: None };
}

/// Which ones are made, and the changes that the next one waits for.
#[derive(Debug, Default)]
pub(in crate::overlay) struct CheckpointPolicy {
    mode: AutomaticCheckpoints,
    quiet: Option<QuietGap>,
}

impl CheckpointPolicy {
    pub fn new(mode: AutomaticCheckpoints) -> Self {
        Self { mode, quiet: mode.idle.map(QuietGap::new) }
    }

    /// A change was committed.
    pub fn note_change(&self) {
        if let Some(quiet) = &self.quiet {
            quiet.note();
        }
    }

    /// Whether a checkpoint of this kind is made, in a session that has one (`is_used`) or none.
    pub fn has(&self, kind: CheckpointKind, is_used: bool) -> bool {
        self.mode.for_commands
            || match kind {
                CheckpointKind::Tool => false,
                CheckpointKind::Safety => is_used,
                CheckpointKind::Manual | CheckpointKind::Idle | CheckpointKind::Fork => true,
            }
    }
}

impl Overlay {
    /// Makes a checkpoint now, unless nothing changed since the newest, so that the first changes
    /// can be taken back too; then one after each quiet gap that follows changes. Returns only when
    /// the session accepts no more changes, or makes no idle checkpoints.
    pub async fn checkpoint_when_idle(&self) {
        let Some(quiet) = &self.core.checkpoints.quiet else { return };
        let mut has_failed = false;
        loop {
            match self.checkpoint_if_changed().await {
                Ok(()) => has_failed = false,
                Err(FsError::ReadOnly) => return,
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "no checkpoint was made; it is tried again");
                    }
                    quiet.note();
                }
            }
            quiet.wait().await;
        }
    }

    /// Makes an idle checkpoint, unless nothing changed since the newest one. Does nothing in a
    /// session without idle checkpoints.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn checkpoint_if_changed(&self) -> Result<(), FsError> {
        if self.core.checkpoints.quiet.is_none() {
            return Ok(());
        }
        let time: Time = (self.core.clock)();
        let new = NewCheckpoint {
            name: None,
            kind: CheckpointKind::Idle,
            labels: BTreeMap::new(),
            time,
            reuses: true,
            needed: None,
        };
        let made = self.change_rows(false, move |txn| txn.create_checkpoint(&new)).await?;
        self.core.checkpoint_bound.background.wake();
        if let MadeCheckpoint::Made(made) = made {
            tracing::debug!(id = made.id.0, "made a checkpoint");
        }
        Ok(())
    }
}
