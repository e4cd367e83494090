//! Errors of the base.

use std::io;

use crate::system_error::words;

/// A failure of the lower layer.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// There is no object at this path, or an ancestor is no directory.
    #[error("not in the base")]
    NotFound,
    /// Another object than the expected one is at the path.
    #[error("the base changed: another object is at this path now")]
    Changed,
    /// The host denies us access.
    #[error("the host denies access to the base")]
    Denied,
    /// Another large directory is being listed; a retry can succeed.
    #[error("another large directory of the base is being listed")]
    Busy,
    /// The object has another type than the call needs.
    #[error("wrong type of base object")]
    WrongKind,
    /// Too many calls of the base are stuck ([`MAX_STUCK_CALLS`](super::MAX_STUCK_CALLS)).
    #[error("the base does not answer")]
    Unresponsive,
    /// The host reports an I/O error.
    #[error("cannot read the base: {}", words(.0))]
    Io(#[from] io::Error),
}
