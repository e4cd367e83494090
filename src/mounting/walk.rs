//! Walks to a mount point from `/`, component by component, by descriptor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::error::{MountError, PlaceAdvice};
use super::point::cannot;
use super::table;

/// The most symbolic links that are followed, as in Linux.
const MAX_LINKS: u32 = 40;

/// The end of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    /// The parent of the mount point.
    parent: OwnedFd,
    /// The name of the mount point in its parent.
    name: OsString,
    /// The mount point, unless something is mounted on it.
    dir: Option<OwnedFd>,
    owner: Option<u32>,
    linked_by: Option<u32>,
}

impl Walked {
    /// The child `name` of an open directory.
    pub(super) fn child(parent: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let dir = openat(&parent, name, PLAIN | OFlags::DIRECTORY, Mode::empty())?;
        let owner = Some(fstat(&dir)?.st_uid);
        Ok(Self { parent, name: name.to_owned(), dir: Some(dir), owner, linked_by: None })
    }

    /// A directory on which something is mounted.
    fn mounted(parent: OwnedFd, name: OsString, linked_by: Option<u32>) -> Self {
        Self { parent, name, dir: None, owner: None, linked_by }
    }

    /// The owner of the directory, if it is open.
    pub(super) fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// The first user other than root who could redirect the walk: the owner of a symbolic link on
    /// the way, or of the directory that contains the link.
    pub(super) fn redirected_by(&self) -> Option<u32> {
        self.linked_by
    }

    /// A path to the directory itself, below any mount on it: the kernel does not cross mounts at a
    /// magic link.
    pub(super) fn by_descriptor(&self) -> PathBuf {
        match &self.dir {
            Some(dir) => descriptor(dir),
            None => descriptor(&self.parent).join(&self.name),
        }
    }

    /// A path whose last component is not a magic link, so that umount2(2) crosses into the mount.
    pub(super) fn mounted_by_descriptor(&self) -> PathBuf {
        match &self.dir {
            // `Path::join` would drop the dot.
            Some(dir) => {
                let mut path = descriptor(dir).into_os_string();
                path.push("/.");
                path.into()
            }
            None => descriptor(&self.parent).join(&self.name),
        }
    }
}

fn descriptor(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Opens without access to the object (no device is opened), and does not follow a link.
const PLAIN: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

enum WalkStep {
    Root,
    Up,
    Name(OsString),
}

/// The steps of a path in reverse order.
fn steps(path: &Path) -> impl Iterator<Item = WalkStep> {
    path.components().rev().filter_map(|component| match component {
        Component::RootDir => Some(WalkStep::Root),
        Component::ParentDir => Some(WalkStep::Up),
        Component::Normal(name) => Some(WalkStep::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Walks to `dir`, following links. Parents with a mount on them are crossed into; at `dir` itself,
/// an existing mount is not opened.
pub(super) fn walk(dir: &Path) -> Result<(PathBuf, Walked), MountError> {
    let failed = |error: io::Error| cannot(dir, &error);
    let refused = |errno: Errno| cannot(dir, &errno.into());
    let root = || openat(CWD, "/", PLAIN | OFlags::DIRECTORY, Mode::empty()).map_err(refused);
    let up = |at: &OwnedFd| openat(at, "..", PLAIN | OFlags::DIRECTORY, Mode::empty());
    let mut left: Vec<WalkStep> = steps(&std::path::absolute(dir).map_err(failed)?).collect();
    let (mut at, mut path) = (root()?, PathBuf::from("/"));
    let (mut links, mut linked_by) = (0, None);
    loop {
        let name = match left.pop() {
            Some(WalkStep::Name(name)) => name,
            Some(WalkStep::Root) => {
                (at, path) = (root()?, "/".into());
                continue;
            }
            Some(WalkStep::Up) => {
                at = up(&at).map_err(refused)?;
                path.pop();
                continue;
            }
            // A path that ends in `..` is resolved to a parent and a name as well.
            None => match path.file_name().map(OsStr::to_owned) {
                Some(name) => {
                    at = up(&at).map_err(refused)?;
                    path.pop();
                    name
                }
                None => return Ok((path, Walked::mounted(at, ".".into(), linked_by))),
            },
        };
        let real = path.join(&name);
        if left.is_empty() && table::at(&real)?.is_some() {
            return Ok((real, Walked::mounted(at, name, linked_by)));
        }
        let found = openat(&at, &name, PLAIN, Mode::empty()).map_err(refused)?;
        let stat = fstat(&found).map_err(refused)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if links == MAX_LINKS => {
                return Err(failed(io::Error::other("too many levels of symbolic links")));
            }
            FileType::Symlink => {
                links += 1;
                let directory = fstat(&at).map_err(refused)?;
                let mut owners = [directory.st_uid, stat.st_uid].into_iter();
                linked_by = linked_by.or_else(|| owners.find(|owner| *owner != 0));
                let target = readlinkat(&found, "", Vec::new()).map_err(refused)?;
                left.extend(steps(&PathBuf::from(OsString::from_vec(target.into_bytes()))));
            }
            FileType::Directory if left.is_empty() => {
                let owner = Some(stat.st_uid);
                return Ok((real, Walked { parent: at, name, dir: Some(found), owner, linked_by }));
            }
            FileType::Directory => (at, path) = (found, real),
            _ if left.is_empty() => {
                let what = MountError::new(format_args!("{}: not a directory", real.display()));
                return Err(what.with_advice(PlaceAdvice::GiveEmptyDirectory));
            }
            _ => return Err(refused(Errno::NOTDIR)),
        }
    }
}
