//! The NLM program: file locks of clients (RFC 1813 appendix II).
//!
//! Locks are kept in memory and are advisory: READ and WRITE ignore them. A lock belongs to a
//! file's number, so it survives copy-up and rename.
//!
//! There are no callbacks. The reply to a blocked LOCK is delayed: the server calls
//! [`LockWait::retry`] whenever [`Nlm::changes`] changes, and after a timeout
//! [`LockWait::give_up`], which makes the client retry after a pause. The asynchronous procedures
//! are unavailable, and share reservations are refused: no current NFSv3 client uses them.

mod program;
mod range;
mod table;
mod waiting;

pub use program::{LockAnswer, Nlm};
pub use range::ByteRange;
pub use table::{
    CLIENT_SHARE, EXPORT_SHARE, HeldLock, LockClient, LockOwner, LockRefusal, LockTable, MAX_LOCKS,
};
pub use waiting::{LockWait, MAX_CLIENT_WAITING, MAX_EXPORT_WAITING, MAX_WAITING};
