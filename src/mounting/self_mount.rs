//! Detects a base whose path shows the session itself: in the mount namespace of a `run`.

use std::path::{Path, PathBuf};

use super::address::reached;
use super::error::MountError;
use super::table::{self, Mounted};
use crate::control::{Answer, ControlConnection, Request};
use crate::inspect::opened::open_session;

/// The base of `session`, if its path shows the session itself. `given` is the base that the user
/// named.
///
/// # Errors
/// The session cannot be opened.
pub(crate) fn base_showing_session(
    session: &Path,
    given: Option<&Path>,
) -> Result<Option<PathBuf>, MountError> {
    let mounted = table::mounted().unwrap_or_default();
    if !mounted.iter().any(Mounted::is_nfs) {
        return Ok(None);
    }
    let base = match given {
        Some(given) => Some(given.to_owned()),
        None => open_session(session)?.base_path().map(Path::to_owned),
    };
    Ok(base.filter(|base| shows(base, session, &mounted)))
}

/// Whether the topmost mount at `base` or above it is from the server of `session`.
fn shows(base: &Path, session: &Path, mounted: &[Mounted]) -> bool {
    let path = std::path::absolute(base).unwrap_or_else(|_unknown| base.to_owned());
    let over = mounted.iter().filter(|mounted| path.starts_with(&mounted.dir));
    let nearest = over.max_by_key(|mounted| mounted.dir.components().count());
    let Some(server) = nearest.and_then(|mounted| mounted.server) else { return false };
    let Ok(Some(mut its)) = ControlConnection::open(session) else { return false };
    let Ok(Answer::Status(status)) = its.ask(&Request::Status) else { return false };
    status.addresses.iter().any(|address| reached(*address) == server)
}
