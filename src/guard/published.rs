//! What guards need of the tree that they guard.

use bytes::Bytes;

use crate::vfs::{Attr, Caller, FsError, Locator, Outcome, Time, Wcc, WriteVerifier};

use super::violation::Violation;

/// A guarded file as everybody sees it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its paths in the export that are guarded: several, if it has several names.
    pub paths: Vec<Vec<u8>>,
    /// Its attributes.
    pub attr: Attr,
}

/// What has to hold in the transaction that publishes a content.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The file's guarded paths, for which the content was validated; it is
    /// [`FsError::Guarded`] if it has others.
    pub paths: Vec<Vec<u8>>,
    /// The file's ctime, if it may not have changed since; it is [`FsError::NotSync`] if it has.
    pub ctime: Option<Time>,
    /// The ctime that its writer was shown last: the new one is later.
    pub shown: Time,
}

/// The tree whose files are guarded. All of it is one transaction each.
pub trait Published: Send + Sync + 'static {
    /// A file's guarded paths and its attributes.
    fn look(&self, file: &Locator) -> impl Future<Output = Result<Seen, FsError>> + Send;

    /// The same with its content; [`FsError::TooLarge`] if that is over
    /// [`super::MAX_DRAFT_BYTES`].
    fn read(&self, file: &Locator)
    -> impl Future<Output = Result<(Seen, Vec<u8>), FsError>> + Send;

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
