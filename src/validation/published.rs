//! What guards need of the tree that they guard.

use bytes::Bytes;

use crate::vfs::{Caller, Expected, FsError, GuardedFile, Locator, Outcome, Wcc, WriteVerifier};

use super::violation::Violation;

/// The tree whose files are guarded. All of it is one transaction each.
pub trait Published: Send + Sync + 'static {
    /// A file's guarded paths and its attributes.
    fn look(&self, file: &Locator) -> impl Future<Output = Result<GuardedFile, FsError>> + Send;

    /// The same with its content; [`FsError::TooLarge`] if that is over
    /// [`super::MAX_DRAFT_BYTES`].
    fn read(
        &self,
        file: &Locator,
    ) -> impl Future<Output = Result<(GuardedFile, Vec<u8>), FsError>> + Send;

    /// Replaces a file's content as a whole, and syncs that.
    fn publish(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        expected: Expected,
    ) -> impl Future<Output = Outcome<WriteVerifier, Wcc>> + Send;

    /// The write verifier in force.
    fn verifier(&self) -> WriteVerifier;

    /// Writes to the audit log that content for a file was refused.
    fn note_refusal(
        &self,
        caller: &Caller,
        file: &Locator,
        violation: &Violation,
    ) -> impl Future<Output = ()> + Send;
}
