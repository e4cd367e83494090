//! What can go wrong in the base.

use std::io;

/// A failure of the lower layer.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// No object at this path, or a component on the way is no directory.
    #[error("not in the base")]
    NotFound,
    /// The path holds another object than the one that was meant.
    #[error("the base changed: another object is at this path now")]
    Changed,
    /// The host denies access to us.
    #[error("the host denies access to the base")]
    Denied,
    /// Another large directory is being listed; this one can be in a moment.
    #[error("another large directory of the base is being listed")]
    Busy,
    /// The object is of another type than the call needs.
    #[error("wrong type of base object")]
    WrongKind,
    /// 8 calls of the base are stuck ([`MAX_STUCK_CALLS`](super::MAX_STUCK_CALLS)).
    #[error("the base does not answer")]
    Unresponsive,
    /// The host reports an I/O error.
    #[error("cannot read the base: {0}")]
    Io(#[from] io::Error),
}
