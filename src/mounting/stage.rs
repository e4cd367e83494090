//! The staging directory of mount(8), which only root can reach.
//!
//! mount(8) and mount.nfs resolve paths repeatedly. In the directory of the notes no other user can
//! replace them. From there, the mount is bound to the mount point by its descriptor, and
//! unmounted.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::error::MountError;
use super::point::MountPoint;
use super::{note, table};

/// The suffix of staging directories.
const SUFFIX: &str = ".stage";

/// Calls `mount` with the staging directory, and binds the result to the mount point.
///
/// # Errors
/// An error of `mount`, or it mounted nothing.
pub(super) fn mount(
    point: &MountPoint,
    mount: impl FnOnce(&Path) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let shown = point.path().display();
    let failed = |error: io::Error| MountError::caused(format!("cannot mount at {shown}"), &error);
    let stage = make(point.path()).map_err(failed)?;
    let mounted = mount(&stage).and_then(|()| match table::at(&stage)? {
        Some(_) => mount_bind(&stage, point.by_descriptor()).map_err(|errno| failed(errno.into())),
        None => {
            let what = format!("mount reported success, but {shown} shows nothing");
            Err(MountError::new(what))
        }
    });
    clear(point.path());
    mounted
}

/// Removes the staging directory that a killed command left for a mount at `dir`.
pub(super) fn clear(dir: &Path) {
    let Ok(stage) = note::file(dir, SUFFIX) else { return };
    let is_mounted = || table::at(&stage).is_ok_and(|mounted| mounted.is_some());
    // Several killed commands may have left a mount each.
    while is_mounted() && unmount(&stage, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).is_ok() {}
    let _gone = std::fs::remove_dir(&stage);
}

fn make(dir: &Path) -> io::Result<PathBuf> {
    clear(dir);
    let stage = note::file(dir, SUFFIX)?;
    DirBuilder::new().mode(0o700).create(&stage)?;
    Ok(stage)
}
