//! Copies a session at one point in time.

use std::path::Path;

use super::error::Result;
use super::opened::host;
use crate::delta::sqlite::{Session, SessionCopy};

/// Copies the session `path` to the new file `to`, also while a server has the session open. The
/// copy is a session of its own: see [`Session::copy_to`].
///
/// Calls `tell` at intervals with the bytes copied and the bytes in all.
///
/// # Errors
/// The file `to` exists, there is too little space, or `path` is not a session. An incomplete copy
/// is removed.
pub fn snapshot(path: &Path, to: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<SessionCopy> {
    Ok(Session::copy_to(path, to, &host()?, tell)?)
}
