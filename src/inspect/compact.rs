//! Giving back the space of what was deleted.

use std::path::Path;

use crate::delta::Compacted;
use crate::delta::sqlite::{OpenError, Session};

/// Gives the free pages of the session `path` back to the disk; what it holds stays as it is.
///
/// `tell` hears how many bytes of how many are copied, every now and then.
///
/// # Errors
/// A server has the session, there is too little room for copying, or it is no session; it is
/// as it was.
pub fn compact(path: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<Compacted, OpenError> {
    Session::compact(path, tell)
}
