//! Where mount(8) mounts first: a directory that we alone can reach.
//!
//! mount(8) and mount.nfs take paths and look at what they lead to again and again. In the
//! directory of the notes nothing can be swapped under them; from there the mount is bound to the
//! mount point by its descriptor, and taken away.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::point::MountPoint;
use super::{note, table};
use crate::cli::error::CliError;

/// Suffix of staging directories.
const SUFFIX: &str = ".stage";

/// Mounts by `mount`, which gets the directory, and binds that to the mount point.
///
/// # Errors
/// Those of `mount`, and that it mounted nothing.
pub(super) fn mount(
    point: &MountPoint,
    mount: impl FnOnce(&Path) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let shown = point.path().display();
    let failed = |error: io::Error| CliError::caused(format!("cannot mount at {shown}"), &error);
    let stage = make(point.path()).map_err(failed)?;
    let mounted = mount(&stage).and_then(|()| match table::at(&stage)? {
        Some(_) => mount_bind(&stage, point.by_descriptor()).map_err(|errno| failed(errno.into())),
        None => {
            let what = format!("mount says that it succeeded, but {shown} shows nothing");
            Err(CliError::new(what))
        }
    });
    clear(point.path());
    mounted
}

/// Takes away what a command that was killed left for a mount at `dir`.
pub(super) fn clear(dir: &Path) {
    let Ok(stage) = note::file(dir, SUFFIX) else { return };
    let is_mounted = || table::at(&stage).is_ok_and(|mounted| mounted.is_some());
    // Several commands may have been killed.
    while is_mounted() && unmount(&stage, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).is_ok() {}
    let _gone = std::fs::remove_dir(&stage);
}

fn make(dir: &Path) -> io::Result<PathBuf> {
    clear(dir);
    let stage = note::file(dir, SUFFIX)?;
    DirBuilder::new().mode(0o700).create(&stage)?;
    Ok(stage)
}
