//! Work on a session file as a whole: compact, migrate, copy, fork. `delta::sqlite` does it.
//!
//! Each function calls `tell` at intervals with the bytes copied and the bytes in all.

use std::path::Path;

use super::error::Result;
use super::opened::host;
use crate::delta::sqlite::{MigrateOptions, Migrated, OpenError, Session, SessionCopy};
use crate::delta::{Checkpoint, Compacted};

/// Gives the free pages of the session `path` back to the disk; its content does not change.
///
/// # Errors
/// A server has the session, the disk has too little space for the copy, or `path` is not a
/// session. The session is unchanged then.
pub fn compact(
    path: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Compacted, OpenError> {
    Session::compact(path, tell)
}

/// Migrates the session `path`, of an older version or of another implementation, to acetate's
/// format: see [`Session::migrate`].
///
/// # Errors
/// Another program has the session open, the name of the backup is taken, or `path` is not a
/// session. The session is unchanged then.
pub fn migrate(
    path: &Path,
    options: &MigrateOptions<'_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Migrated> {
    Ok(Session::migrate(path, options, &host()?, tell)?)
}

/// Copies the session `path` to the new file `to`, also while a server has the session open. The
/// copy is a session of its own: see [`Session::copy_to`].
///
/// # Errors
/// The file `to` exists, there is too little space, or `path` is not a session. An incomplete copy
/// is removed.
pub fn snapshot(path: &Path, to: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<SessionCopy> {
    Ok(Session::copy_to(path, to, &host()?, tell)?)
}

/// Makes the new session `to` with the tree of the session `path` at a checkpoint: see
/// [`Session::fork_to`].
///
/// # Errors
/// As [`snapshot`]; also if the checkpoint is not there.
pub fn fork(
    path: &Path,
    to: &Path,
    at: &Checkpoint,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<SessionCopy> {
    Ok(Session::fork_to(path, to, at, &host()?, tell)?)
}
