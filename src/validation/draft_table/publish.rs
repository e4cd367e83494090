//! Publishing of drafts, and rejection of invalid ones.

use std::time::Instant;

use bytes::Bytes;

use crate::counters::COUNTERS;
use crate::validation::limits::MAX_ATTEMPTS;
use crate::validation::resources::NotAccepted;
use crate::validation::violation::Violation;
use crate::vfs::{Attr, Caller, FsError, Locator, PublishPreconditions, Time, WriteVerifier};

use super::{DraftEntry, DraftState, DraftTable, OpenDraft, Published, lock};

/// Why a draft or a piece was not accepted.
pub(super) enum DraftFailure {
    /// The content is invalid.
    Refused(Violation),
    /// The file changed since the draft began, which the caller did not allow.
    Changed,
    /// Any other error.
    Because(FsError),
}

impl From<NotAccepted> for DraftFailure {
    fn from(fault: NotAccepted) -> Self {
        match fault {
            NotAccepted::Refused(violation) => Self::Refused(violation),
            NotAccepted::Busy => Self::Because(FsError::TryLater),
        }
    }
}

impl<P: Published> DraftTable<P> {
    /// Checks whole content against every guard of `path`.
    ///
    /// # Errors
    /// The first violation, or no permit was free in time.
    pub async fn validate(&self, path: &[u8], content: &Bytes) -> Result<(), NotAccepted> {
        for validator in self.parts.guards.of(path) {
            self.parts.resources.check(&validator, path, content).await?;
        }
        Ok(())
    }

    /// Whether a file at this path is guarded.
    pub fn is_guarded(&self, path: &[u8]) -> bool {
        self.parts.guards.is_guarded(path)
    }

    /// Logs a rejection, also in the audit log.
    pub async fn refuse(&self, caller: &Caller, file: &Locator, violation: &Violation) {
        let seen = self.parts.tree.look(file).await;
        let path = seen.ok().and_then(|seen| seen.paths.into_iter().next()).unwrap_or_default();
        tracing::warn!(
            path = %path.escape_ascii(),
            client = %caller.client,
            uid = caller.uid,
            %violation,
            "refused the content of a guarded file"
        );
        COUNTERS.guard_refusals.add(1);
        self.parts.tree.note_refusal(caller, file, violation).await;
    }

    /// Validates and publishes a draft; with `ctime`, only if the file still has that ctime.
    pub(super) async fn settle(
        &self,
        open: &mut OpenDraft,
        ctime: Option<Time>,
    ) -> Result<(WriteVerifier, Option<Attr>), DraftFailure> {
        let content = Bytes::from(open.draft.take());
        let published = self.publish(open, &content, ctime).await;
        if published.is_err() {
            open.draft.restore_content(content.into());
        }
        published
    }

    async fn publish(
        &self,
        open: &OpenDraft,
        content: &Bytes,
        ctime: Option<Time>,
    ) -> Result<(WriteVerifier, Option<Attr>), DraftFailure> {
        let (tree, file) = (&self.parts.tree, &open.file);
        for _ in 0..MAX_ATTEMPTS {
            let paths = tree.look(file).await.map_err(DraftFailure::Because)?.paths;
            for path in &paths {
                self.validate(path, content).await?;
            }
            let (after, tree_changes) = (open.shown.time, open.tree_changes);
            let expected = PublishPreconditions { paths, ctime, after, tree_changes };
            let outcome = tree.publish(&open.caller, file, content.clone(), expected).await;
            match outcome.result {
                Ok(verifier) => return Ok((self.verifier(verifier), outcome.context.after)),
                // The file was renamed, and other guards may apply now.
                Err(FsError::Guarded) => {}
                Err(FsError::NotSync) => return Err(DraftFailure::Changed),
                Err(error) => return Err(DraftFailure::Because(error)),
            }
        }
        Err(DraftFailure::Because(FsError::TryLater))
    }

    /// Sets the state after a failed operation; returns the error for the client.
    pub(super) async fn fail_draft(
        &self,
        entry: &DraftEntry,
        state: &mut DraftState,
        open: Box<OpenDraft>,
        failed: DraftFailure,
        is_unstable: bool,
    ) -> FsError {
        let error = match failed {
            DraftFailure::Changed | DraftFailure::Because(FsError::TryLater) => {
                *lock(&entry.shown) = open.shown_by_all();
                *state = DraftState::Open(open);
                return FsError::TryLater;
            }
            DraftFailure::Because(error) => error,
            DraftFailure::Refused(violation) => {
                self.refuse(&open.caller, &open.file, &violation).await;
                FsError::Invalid
            }
        };
        *lock(&entry.shown) = None;
        *state = if open.has_pieces || is_unstable {
            DraftState::Refused { error, at: Instant::now() }
        } else {
            DraftState::Nothing
        };
        error
    }
}
