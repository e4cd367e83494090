//! Other paths of the base: mounts through which the base, or a part of it, can also be reached.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxFlags, fstat, openat, statx};
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::mounting::error::MountError;
use crate::mounting::event::{MountEvent, Observer};
use crate::mounting::table::{self, MountTableEntry};

/// The base before the session is mounted over it.
pub(super) struct CoveredBase {
    path: PathBuf,
    dir: OwnedFd,
    identity: ObjectIdentity,
    /// The id of the mount that contains the base.
    mount: u64,
    /// The path from the root of its filesystem.
    within: PathBuf,
    device: String,
    owner: u32,
}

/// Device and inode number, which identify an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ObjectIdentity {
    device: u64,
    number: u64,
}

/// Opens a path without access to the object, and does not follow a link.
const O_PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl CoveredBase {
    /// Opens the directory `path`, which must not contain symbolic links.
    pub(super) fn find(path: &Path) -> Result<Self, MountError> {
        let failed = |error: io::Error| MountError::base(path, error);
        let dir = openat(CWD, path, O_PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let identity = ObjectIdentity::of(&dir).map_err(failed)?;
        let owner = fstat(&dir).map_err(|errno| failed(errno.into()))?.st_uid;
        let entries = table::entries().map_err(failed)?;
        let mount = mount_of(&dir, path, &entries).map_err(failed)?;
        let Some(at) = entries.iter().find(|entry| entry.id == mount) else {
            return Err(failed(io::Error::other("it is in no mount that is known")));
        };
        let below = path.strip_prefix(&at.dir).unwrap_or(Path::new(""));
        let within = join(&at.root, below);
        let device = at.device.clone();
        Ok(Self { path: path.to_owned(), dir, identity, mount, within, device, owner })
    }

    /// Checks that the base's own path no longer leads to the base.
    pub(super) fn check_covered(&self, dir: &Path) -> Result<(), MountError> {
        match identity_at(dir) {
            Some(found) if found == self.identity => {
                let what = format!("{}: the base still shows there", dir.display());
                Err(MountError::new(what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// The base's own path and its other paths.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, MountError> {
        let aliases = self.aliases(&entries()?).into_iter().map(|alias| alias.path);
        Ok(std::iter::once(self.path.clone()).chain(aliases).collect())
    }

    /// Bind-mounts the session at `dir` over every other path to the base; returns these paths.
    /// Reports paths for which that fails.
    pub(super) fn cover_aliases(
        &self,
        dir: &Path,
        tell: Observer<'_>,
    ) -> Result<Vec<PathBuf>, MountError> {
        let entries = entries()?;
        let mut covered = Vec::new();
        for alias in self.aliases(&entries) {
            if identity_at(&alias.path) != Some(alias.identity) {
                // Another mount covers the path.
                continue;
            }
            match cover(&join(dir, &alias.below), &alias.path) {
                Ok(()) => covered.push(alias.path),
                Err(error) => {
                    let base = self.path.clone();
                    tell(MountEvent::BaseReachable { base, at: alias.path, error });
                }
            }
        }
        Ok(covered)
    }

    /// Other paths that may lead to the base or into it.
    fn aliases(&self, entries: &[MountTableEntry]) -> Vec<Alias> {
        let others = entries.iter().filter(|entry| entry.device == self.device);
        let found = others.filter_map(|entry| {
            if let Ok(below) = self.within.strip_prefix(&entry.root) {
                let path = join(&entry.dir, below);
                let is_other = entry.id != self.mount && path != self.path;
                let identity = self.identity;
                return is_other.then_some(Alias { path, below: PathBuf::new(), identity });
            }
            let below = entry.root.strip_prefix(&self.within).ok()?.to_owned();
            let identity = self.identity_of(&below)?;
            Some(Alias { path: entry.dir.clone(), below, identity })
        });
        found.collect()
    }

    fn identity_of(&self, below: &Path) -> Option<ObjectIdentity> {
        ObjectIdentity::of(&openat(&self.dir, below, O_PATH_FLAGS, Mode::empty()).ok()?).ok()
    }
}

fn entries() -> Result<Vec<MountTableEntry>, MountError> {
    table::entries().map_err(|error| MountError::caused("cannot tell what is mounted", &error))
}

/// A path that may lead to the base, or to `below` in it.
#[derive(Debug)]
struct Alias {
    path: PathBuf,
    below: PathBuf,
    identity: ObjectIdentity,
}

impl ObjectIdentity {
    fn of(fd: &OwnedFd) -> io::Result<Self> {
        let Stat { st_dev, st_ino, .. } = fstat(fd)?;
        Ok(Self { device: st_dev, number: st_ino })
    }
}

fn identity_at(path: &Path) -> Option<ObjectIdentity> {
    ObjectIdentity::of(&openat(CWD, path, O_PATH_FLAGS, Mode::empty()).ok()?).ok()
}

/// `Path::join`, without a trailing slash for an empty `below`.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

/// The id of the mount that contains an object: by statx(2) since Linux 5.8, otherwise the last
/// mount with the longest prefix of the path.
fn mount_of(dir: &OwnedFd, path: &Path, entries: &[MountTableEntry]) -> io::Result<u64> {
    let found = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        return Ok(found.stx_mnt_id);
    }
    let on_the_way = entries.iter().filter(|entry| path.starts_with(&entry.dir));
    let nearest = on_the_way.max_by_key(|entry| entry.dir.components().count());
    nearest.map(|entry| entry.id).ok_or_else(|| io::Error::other("no mount has it"))
}

/// Mounts the object at `shown` over `path`; an empty one if it is missing or of another type.
fn cover(shown: &Path, path: &Path) -> io::Result<()> {
    let target = openat(CWD, path, O_PATH_FLAGS, Mode::empty())?;
    let is_dir = |fd: &OwnedFd| {
        let kind = fstat(fd).map(|found| FileType::from_raw_mode(found.st_mode));
        kind.is_ok_and(|kind| kind == FileType::Directory)
    };
    let by_descriptor = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let source = openat(CWD, shown, O_PATH_FLAGS, Mode::empty()).ok();
    let place = by_descriptor(&target);
    match source.filter(|source| is_dir(source) == is_dir(&target)) {
        Some(source) => mount_bind(by_descriptor(&source), place)?,
        None if is_dir(&target) => {
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount("acetate", place, "tmpfs", flags, c"size=4k,mode=0755")?;
        }
        None => mount_bind("/dev/null", place)?,
    }
    Ok(())
}
