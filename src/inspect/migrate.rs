//! Bringing old sessions, and those of other implementations, to acetate's form.

use std::path::Path;

use super::error::Result;
use super::opened::host;
use crate::delta::sqlite::{MigrateOptions, Migrated, Session};

/// Makes the session `path` one of acetate's: see [`Session::migrate`].
///
/// `tell` hears how many bytes of how many are copied before, every now and then.
///
/// # Errors
/// Another program has the session, there is a file in the place of the copy, or it is no
/// session. It is as it was.
pub fn migrate(
    path: &Path,
    options: &MigrateOptions<'_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Migrated> {
    Ok(Session::migrate(path, options, &host()?, tell)?)
}
