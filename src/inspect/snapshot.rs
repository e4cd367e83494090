//! A copy of a session, as it is at one moment.

use std::path::Path;

use super::error::Result;
use super::opened::host;
use crate::delta::sqlite::{Session, SessionCopy};

/// Copies the session `path` to the new file `to`, whoever serves it meanwhile. The copy is a
/// session of its own: see [`Session::copy_to`].
///
/// `tell` hears how many bytes of how many are copied, every now and then.
///
/// # Errors
/// There is a file `to` already, there is too little room, or `path` is no session. Nothing is
/// left of the copy.
pub fn snapshot(path: &Path, to: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<SessionCopy> {
    Ok(Session::copy_to(path, to, &host()?, tell)?)
}
