//! Repairs what [`check`] finds.

use std::path::Path;

use super::check::{Soundness, check};
use super::error::Result;
use super::opened::host;
use crate::base::{Base, BaseError, BasePath, HostDir, HostDirOptions};
use crate::delta::sqlite::{BaseListing, CheckOptions, RepairOptions, RepairReport, Session};

/// Repairs the session `path` and checks it again; a dry run only reports the repairs. The base is
/// `base`, or the one that the session records. It is only read, for names that must stay hidden.
///
/// Calls `tell` at intervals with the bytes copied and the bytes in all of the backup.
///
/// # Errors
/// A server has the session, the name of the copy is taken, or SQLite reports the file as corrupt.
/// The session is unchanged then.
pub fn repair(
    path: &Path,
    base: Option<&Path>,
    options: &RepairOptions<'_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<(RepairReport, Option<Soundness>)> {
    let recorded = Session::recorded_base(path)?;
    let given = base.or(recorded.as_deref());
    let dir = given.map(|base| HostDir::open(base, HostDirOptions::default()));
    let ask = |path: &BasePath| match &dir {
        None => BaseListing::Nothing,
        Some(Err(_)) => BaseListing::Unknown,
        Some(Ok(dir)) => match dir.list(path) {
            Ok(listing) => {
                BaseListing::Names(listing.entries.iter().map(|entry| entry.name.clone()).collect())
            }
            Err(BaseError::NotFound | BaseError::WrongKind) => BaseListing::Nothing,
            Err(_) => BaseListing::Unknown,
        },
    };
    let repaired = Session::repair(path, options, &ask, &host()?, tell)?;
    let asked = CheckOptions { most: options.most, quick: true };
    let left = (!options.dry_run).then(|| check(path, base, &asked)).transpose()?;
    Ok((repaired, left))
}
