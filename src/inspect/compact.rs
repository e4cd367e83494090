//! Gives free pages of a session back to the disk.

use std::path::Path;

use crate::delta::Compacted;
use crate::delta::sqlite::{OpenError, Session};

/// Gives the free pages of the session `path` back to the disk; its content does not change.
///
/// Calls `tell` at intervals with the bytes copied and the bytes in all.
///
/// # Errors
/// A server has the session, the disk has too little space for the copy, or `path` is not a
/// session. The session is unchanged then.
pub fn compact(path: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<Compacted, OpenError> {
    Session::compact(path, tell)
}
