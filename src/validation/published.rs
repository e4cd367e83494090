//! The tree of guarded files, as this module needs it.

use bytes::Bytes;

use crate::vfs::{
    Caller, FsError, GuardedFile, Locator, Outcome, PublishPreconditions, Wcc, WriteVerifier,
};

use super::violation::Violation;

/// The tree whose files are guarded. Each method is one transaction.
pub trait Published: Send + Sync + 'static {
    /// Guarded paths and attributes of a file.
    fn look(&self, file: &Locator) -> impl Future<Output = Result<GuardedFile, FsError>> + Send;

    /// As [`Self::look`], with the content; [`FsError::TooLarge`] above [`super::MAX_DRAFT_BYTES`].
    fn read(
        &self,
        file: &Locator,
    ) -> impl Future<Output = Result<(GuardedFile, Vec<u8>), FsError>> + Send;

    /// Replaces a file's content as a whole and syncs it.
    fn publish(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        expected: PublishPreconditions,
    ) -> impl Future<Output = Outcome<WriteVerifier, Wcc>> + Send;

    /// Number of changes of the whole tree so far, such as a restore: each ends all drafts.
    fn tree_changes(&self) -> u64;

    /// The current write verifier.
    fn verifier(&self) -> WriteVerifier;

    /// Records in the audit log that a file's new content was rejected.
    fn note_refusal(
        &self,
        caller: &Caller,
        file: &Locator,
        violation: &Violation,
    ) -> impl Future<Output = ()> + Send;
}
