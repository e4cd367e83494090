//! Mending what [`check`] finds.

use std::path::Path;

use super::check::{Soundness, check};
use super::error::Result;
use super::opened::host;
use crate::base::{Base, BaseError, BasePath, HostDir, HostDirOptions};
use crate::delta::sqlite::{BaseListing, CheckOptions, RepairOptions, RepairReport, Session};

/// Mends the session `path`, and checks it again; a dry run only says what would be mended. The
/// base, which is `base` or the one that the session names, is only read: for names that must
/// stay hidden.
///
/// `tell` hears how many bytes of how many are copied before, every now and then.
///
/// # Errors
/// A server has the session, there is a file in the place of the copy, or SQLite finds the file
/// itself damaged. It is as it was.
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
