//! Migrates sessions of older versions and of other implementations to acetate's format.

use std::path::Path;

use super::error::Result;
use super::opened::host;
use crate::delta::sqlite::{MigrateOptions, Migrated, Session};

/// Migrates the session `path`: see [`Session::migrate`].
///
/// Calls `tell` at intervals with the bytes copied and the bytes in all of the backup.
///
/// # Errors
/// Another program has the session open, the name of the copy is taken, or `path` is not a session.
/// The session is unchanged then.
pub fn migrate(
    path: &Path,
    options: &MigrateOptions<'_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Migrated> {
    Ok(Session::migrate(path, options, &host()?, tell)?)
}
