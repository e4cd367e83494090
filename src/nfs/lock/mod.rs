//! The NLM program: file locks of clients (RFC 1813 appendix II).
//!
//! Locks are kept in memory and are advisory: READ and WRITE do not look at them. They belong to
//! a file's number, so that they survive copy-up and rename.
//!
//! There are no callbacks. A LOCK that has to wait is not answered for a while: whoever serves
//! this tries [`LockWait::retry`] after [`Nlm::changes`] did, and in the end says
//! [`LockWait::give_up`], upon which the client asks again after a pause. The asynchronous
//! procedures are unavailable, and share reservations are refused: no client of NFSv3 that is
//! alive uses them.

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
