//! Timeouts: publishes files that were only truncated or extended, discards idle drafts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::time::sleep;

use crate::validation::violation::Violation;
use crate::vfs::FsError;

use super::publish::DraftFailure;
use super::truncated_mark::TruncatedMark;
use super::{DraftEntry, DraftState, DraftTable, OpenDraft, Published, forget_nothing, lock};

impl<P: Published> DraftTable<P> {
    /// Starts the task that handles timeouts, unless it runs. The task ends with the last draft.
    pub(super) fn start_expiry(self: &Arc<Self>) {
        if self.is_tended.swap(true, Ordering::AcqRel) {
            return;
        }
        let (desk, tick) = (Arc::downgrade(self), self.parts.periods.tick);
        tokio::spawn(async move {
            loop {
                sleep(tick).await;
                match desk.upgrade() {
                    Some(desk) => {
                        if desk.expire_due().await {
                            return;
                        }
                    }
                    None => return,
                }
            }
        });
    }

    /// Handles due timeouts; returns whether no entry is left.
    async fn expire_due(&self) -> bool {
        let entries: Vec<_> = lock(&self.entries).values().cloned().collect();
        for entry in entries {
            // An entry that is in use has no due timeout.
            if let Ok(mut state) = entry.state.try_lock() {
                self.do_what_is_due(&entry, &mut state).await;
            }
        }
        let mut entries = lock(&self.entries);
        forget_nothing(&mut entries);
        if entries.is_empty() {
            self.is_tended.store(false, Ordering::Release);
        }
        entries.is_empty()
    }

    async fn do_what_is_due(&self, entry: &DraftEntry, state: &mut DraftState) {
        self.end_outdated(entry, state).await;
        let periods = &self.parts.periods;
        match state {
            DraftState::Refused { at, .. } if at.elapsed() >= periods.refused => {
                *state = DraftState::Nothing
            }
            DraftState::Cut(cut) if cut.since.elapsed() >= periods.cut => {
                self.give_up(cut).await;
                *state = DraftState::Nothing;
            }
            DraftState::Open(open) if open.changed.elapsed() >= periods.idle => {
                if let Some(cut) = TruncatedMark::of(open) {
                    *state = DraftState::Cut(Box::new(cut));
                    return;
                }
                let what = Violation::new("given up: no valid content came, and no COMMIT");
                self.refuse(&open.caller, &open.file, &what).await;
                self.lose(entry, state);
            }
            DraftState::Open(open)
                if !open.has_pieces
                    && !open.is_tried
                    && open.changed.elapsed() >= periods.quiet =>
            {
                if let DraftState::Open(open) = std::mem::take(state) {
                    self.try_to_publish(entry, state, open).await;
                }
            }
            DraftState::Nothing
            | DraftState::Refused { .. }
            | DraftState::Open(_)
            | DraftState::Cut(_) => {}
        }
    }

    /// Ends a draft that began before a change of the whole tree, such as a restore: its content
    /// would replace what that brought back. Its pieces are refused, as after invalid content.
    pub(super) async fn end_outdated(&self, entry: &DraftEntry, state: &mut DraftState) {
        let DraftState::Open(open) = state else { return };
        if open.tree_changes == self.parts.tree.tree_changes() {
            return;
        }
        let ended = if open.has_pieces {
            let what = Violation::new("given up: the whole tree was changed, as by a restore");
            self.refuse(&open.caller, &open.file, &what).await;
            DraftState::Refused { error: FsError::Invalid, at: Instant::now() }
        } else {
            DraftState::Nothing
        };
        *state = ended;
        *lock(&entry.shown) = None;
    }

    /// Publishes a draft that was only truncated or extended, if valid. Otherwise more content may
    /// follow.
    async fn try_to_publish(
        &self,
        entry: &DraftEntry,
        state: &mut DraftState,
        mut open: Box<OpenDraft>,
    ) {
        match self.settle(&mut open, None).await {
            Ok(_) => *lock(&entry.shown) = None,
            Err(DraftFailure::Because(FsError::Stale)) => self.lose(entry, state),
            Err(failed) => {
                open.is_tried = !matches!(failed, DraftFailure::Because(FsError::TryLater));
                *state = DraftState::Open(open);
            }
        }
    }

    /// Publishes drafts that were only truncated or extended, if valid, and discards the others.
    /// The next server has another write verifier, so clients send their pieces again.
    pub async fn close(&self) {
        let entries: Vec<_> = lock(&self.entries).values().cloned().collect();
        for entry in entries {
            let mut state = entry.state.lock().await;
            self.end_outdated(&entry, &mut state).await;
            if let DraftState::Open(open) = std::mem::take(&mut *state)
                && !open.has_pieces
            {
                self.try_to_publish(&entry, &mut state, open).await;
            }
            self.lose(&entry, &mut state);
        }
    }
}
