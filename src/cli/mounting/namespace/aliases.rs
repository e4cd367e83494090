//! The base by other paths: where it, or a part of it, is mounted a second time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxFlags, fstat, openat, statx};
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::cli::error::CliError;
use crate::cli::mounting::table::{self, MountTableEntry};
use crate::cli::{output, text};

/// The base as it was before the session was mounted over it.
pub(super) struct CoveredBase {
    path: PathBuf,
    dir: OwnedFd,
    identity: ObjectIdentity,
    /// The mount that it is in.
    mount: u64,
    /// Its path from the root of its filesystem.
    within: PathBuf,
    device: String,
    owner: u32,
}

/// What tells an object from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ObjectIdentity {
    device: u64,
    number: u64,
}

/// Opens without access to the object, and follows no link.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl CoveredBase {
    /// Looks at the directory `path`, which has no symbolic links in it.
    pub(super) fn find(path: &Path) -> Result<Self, CliError> {
        let failed = |error: io::Error| CliError::base(path, &error.into());
        let dir = openat(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty())
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

    /// Sees to it that the base's own path does not lead to the base any more.
    pub(super) fn check_covered(&self, dir: &Path) -> Result<(), CliError> {
        match identity_at(dir) {
            Some(found) if found == self.identity => {
                let what = format!("{}: the base still shows there", dir.display());
                Err(CliError::new(what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// The base's own path and the others.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, CliError> {
        let aliases = self.aliases(&entries()?).into_iter().map(|alias| alias.path);
        Ok(std::iter::once(self.path.clone()).chain(aliases).collect())
    }

    /// Mounts what shows at `dir` over every other path that leads to the base, and returns these;
    /// names those where that fails.
    pub(super) fn cover_aliases(&self, dir: &Path) -> Result<Vec<PathBuf>, CliError> {
        let entries = entries()?;
        let mut covered = Vec::new();
        for alias in self.aliases(&entries) {
            if identity_at(&alias.path) != Some(alias.identity) {
                // Something else is mounted over it.
                continue;
            }
            let shown = text::name(alias.path.as_os_str().as_encoded_bytes());
            match cover(&join(dir, &alias.below), &alias.path) {
                Ok(()) => covered.push(alias.path),
                Err(error) => {
                    let base = self.path.display();
                    output::line(format_args!("{base} can still be reached at {shown}: {error}"));
                }
            }
        }
        Ok(covered)
    }

    /// Other paths that may lead to the base or to something in it.
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
        ObjectIdentity::of(&openat(&self.dir, below, LOOK, Mode::empty()).ok()?).ok()
    }
}

fn entries() -> Result<Vec<MountTableEntry>, CliError> {
    table::entries().map_err(|error| CliError::caused("cannot tell what is mounted", &error))
}

/// A path that may lead to the base, or to what is at `below` in it.
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
    ObjectIdentity::of(&openat(CWD, path, LOOK, Mode::empty()).ok()?).ok()
}

/// `Path::join` without a slash at the end where there is nothing to join.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

/// The number of the mount that an object is in: from the kernel since Linux 5.8, else the last
/// of those whose paths are the longest beginnings of its own.
fn mount_of(dir: &OwnedFd, path: &Path, entries: &[MountTableEntry]) -> io::Result<u64> {
    let found = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        return Ok(found.stx_mnt_id);
    }
    let on_the_way = entries.iter().filter(|entry| path.starts_with(&entry.dir));
    let nearest = on_the_way.max_by_key(|entry| entry.dir.components().count());
    nearest.map(|entry| entry.id).ok_or_else(|| io::Error::other("no mount has it"))
}

/// Mounts what is at `shown` over `path`, or nothing where that is not there or something else.
fn cover(shown: &Path, path: &Path) -> io::Result<()> {
    let target = openat(CWD, path, LOOK, Mode::empty())?;
    let is_dir = |fd: &OwnedFd| {
        let kind = fstat(fd).map(|found| FileType::from_raw_mode(found.st_mode));
        kind.is_ok_and(|kind| kind == FileType::Directory)
    };
    let by_descriptor = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let source = openat(CWD, shown, LOOK, Mode::empty()).ok();
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
