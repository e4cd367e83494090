//! Copies objects and trees between host directories, with type, content, holes, mode, owner,
//! times, extended attributes and hard links.
//!
//! On request, files become hard links of the originals where the host supports that.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attrs::{self, SET_ID};
use super::object::{TargetObject, entry};
use super::{Result, Staging, Target, Unset, effective_user, unreadable, xattrs};
use crate::base::BasePath;
use crate::vfs::FileKind;

/// Makes copies, and remembers the copies of hard-linked files.
#[derive(Debug)]
pub struct Cloner<'a> {
    /// Notes the mode of a file that is changed to read it.
    staging: &'a Staging,
    /// Whether files become hard links of the originals where the host supports that.
    links: bool,
    /// The attributes that could not be set, for each affected object.
    pub unset: Vec<Unset>,
    /// Copies that lack extended attributes or the exact mtime of the original, which the
    /// filesystem refuses or cannot store, by their paths below the tops of the copied trees; and
    /// the names of what they lack.
    pub lost: Vec<(BasePath, Vec<String>)>,
    /// Copies that were to become hard links, by their paths below the tops of the copied trees,
    /// with the host's errors.
    pub lost_links: Vec<(BasePath, io::Error)>,
    /// The copies of hard-linked files, by the original's device and inode number.
    made: HashMap<(u64, u64), BasePath>,
}

/// Exceptions for paths below the top of a copied tree.
#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// Whether a directory gets its attributes later, because entries are still to be added.
    pub later: &'a dyn Fn(&BasePath) -> bool,
    /// The file of the destination to which a path becomes a hard link, if any.
    pub other_name: &'a dyn Fn(&BasePath) -> Option<BasePath>,
}

impl Hooks<'_> {
    /// No exceptions.
    pub const NONE: Self = Self { later: &|_| false, other_name: &|_| None };
}

/// Source and destination of a copy.
struct CloneEnds<'a> {
    from: (&'a Target, &'a BasePath),
    to: (&'a Target, &'a BasePath),
    hooks: Hooks<'a>,
}

impl CloneEnds<'_> {
    fn at(&self, below: &BasePath) -> (BasePath, BasePath) {
        let join = |top: &BasePath| match below.is_root() {
            true => top.clone(),
            false => entry(top, below.as_bytes()),
        };
        (join(self.from.1), join(self.to.1))
    }
}

impl<'a> Cloner<'a> {
    /// Makes copies of files.
    pub fn new(staging: &'a Staging) -> Self {
        let (unset, lost, lost_links) = (Vec::new(), Vec::new(), Vec::new());
        Self { staging, links: false, unset, lost, lost_links, made: HashMap::new() }
    }

    /// Makes hard links of files instead of copies, where the host supports that.
    pub fn linking(staging: &'a Staging) -> Self {
        Self { links: true, ..Self::new(staging) }
    }

    /// Copies the object at `from` to `to`, which must not exist.
    ///
    /// # Errors
    /// An object cannot be read or written.
    pub fn copy(
        &mut self,
        from: (&Target, &BasePath),
        to: (&Target, &BasePath),
        hooks: Hooks<'_>,
    ) -> Result<()> {
        let ends = CloneEnds { from, to, hooks };
        let (mut open, mut dirs) = (vec![BasePath::root()], Vec::new());
        while let Some(below) = open.pop() {
            let (source, place) = ends.at(&below);
            let Some(object) = from.0.object(&source)? else {
                return Err(from.0.error(&source, io::ErrorKind::NotFound.into()));
            };
            if object.is_dir() {
                let made = || -> io::Result<()> {
                    let (dir, name) = to.0.parent(&place)?;
                    Ok(rustix::fs::mkdirat(&dir, name, Mode::RWXU)?)
                };
                made().map_err(|source| to.0.error(&place, source))?;
                open.extend(from.0.names(&source)?.iter().map(|name| entry(&below, name)));
                dirs.push((below, object));
            } else {
                self.file(&ends, &below, &object)?;
            }
        }
        for (below, object) in dirs.iter().rev() {
            let is_later = (hooks.later)(below);
            self.finish(&ends, below, object, is_later)?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        ends: &CloneEnds<'_>,
        below: &BasePath,
        object: &TargetObject,
    ) -> Result<()> {
        let (source, place) = ends.at(below);
        let (from, to) = (ends.from.0, ends.to.0);
        let first = self.made.get(&object.id()).cloned();
        let other = || (ends.hooks.other_name)(below);
        let mut refused = None;
        for (name, is_first) in [(first, true), (other(), false)] {
            let linked = name.map(|name| link((to, &name), (to, &place)));
            match linked {
                Some(Ok(())) => {
                    if !is_first && object.nlink > 1 {
                        self.made.insert(object.id(), place);
                    }
                    return Ok(());
                }
                Some(Err(error)) => refused = Some(error),
                None => {}
            }
        }
        self.lost_links.extend(refused.map(|error| (below.clone(), error)));
        if object.nlink > 1 {
            self.made.insert(object.id(), place.clone());
        }
        if self.links {
            match link((from, &source), (to, &place)) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.links = false,
                Err(_) => {}
            }
        }
        let staging = self.staging;
        let copied = || -> io::Result<()> {
            let (opened, to) = ((from, &source), to.parent(&place)?);
            let (source, place) = (from.parent(&source)?, to);
            match object.seen.kind {
                FileKind::Regular => {
                    let source = unreadable::open(staging, opened, object)?;
                    content(&source, (&place.0, place.1), object)
                }
                FileKind::Symlink => {
                    let target = rustix::fs::readlinkat(&source.0, source.1, Vec::new())?;
                    Ok(rustix::fs::symlinkat(target, &place.0, place.1)?)
                }
                _ => special((&source.0, source.1), (&place.0, place.1)),
            }
        };
        copied().map_err(|source| to.error(&place, source))?;
        self.finish(ends, below, object, false)
    }

    /// Sets the attributes of a copy. Setting an ACL changes the mode, and chown removes
    /// capabilities, so extended attributes are set both before and after.
    fn finish(
        &mut self,
        ends: &CloneEnds<'_>,
        below: &BasePath,
        object: &TargetObject,
        is_later: bool,
    ) -> Result<()> {
        let (source, place) = ends.at(below);
        let carried = unreadable::xattrs(self.staging, (ends.from.0, &source), object)?;
        let mut lost = Vec::new();
        let mut set = || -> io::Result<Unset> {
            let (dir, name) = ends.to.0.parent(&place)?;
            lost = xattrs::write(dir.as_fd(), name, &carried);
            if is_later {
                rustix::fs::chmodat(&dir, name, Mode::RWXU, AtFlags::empty())?;
                return Ok(Unset::default());
            }
            let unset = attrs::set(dir.as_fd(), name, &object.attrs)?;
            if !carried.is_empty() {
                lost = xattrs::write(dir.as_fd(), name, &carried);
            }
            Ok(unset)
        };
        let unset = set().map_err(|source| ends.to.0.error(&place, source))?;
        let mut lost: Vec<_> =
            lost.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        if !is_later && !unset.times && !has_mtime_of(ends.to.0, &place, object)? {
            lost.push("mtime".to_owned());
        }
        if !lost.is_empty() {
            self.lost.push((below.clone(), lost));
        }
        if unset != Unset::default() {
            self.unset.push(unset);
        }
        Ok(())
    }
}

/// Whether a copy has the mtime of the original: a filesystem may store whole seconds only.
fn has_mtime_of(copy: &Target, place: &BasePath, object: &TargetObject) -> Result<bool> {
    let now = copy.object(place)?;
    Ok(now.is_some_and(|now| now.attrs.mtime == object.attrs.mtime))
}

/// Fails if this user cannot copy the object at `path`: a file that the user may not read, or a
/// device, which only root makes.
///
/// # Errors
/// The reason.
pub fn check_copy(from: &Target, path: &BasePath, object: &TargetObject) -> Result<()> {
    let checked = || -> io::Result<()> {
        match object.seen.kind {
            // The owner can open it in any case; that could need a chmod(2), which a check avoids.
            FileKind::Regular if object.attrs.uid != effective_user() => {
                let (dir, name) = from.parent(path)?;
                unreadable::open_file(&dir, name).map(drop)
            }
            FileKind::Block | FileKind::Character if effective_user() != 0 => {
                Err(Errno::PERM.into())
            }
            _ => Ok(()),
        }
    };
    checked().map_err(|source| from.error(path, source))
}

/// Whether this user may make hard links of an object of another user. With `protected_hardlinks`
/// (proc_sys_fs(5)), only of a regular file without set-ID bits that the user may read and write.
pub fn may_link(of: &Target, path: &BasePath, object: &TargetObject) -> bool {
    if !has_protected_links() {
        return true;
    }
    let is_writable = || -> io::Result<bool> {
        let (dir, name) = of.parent(path)?;
        let want = Access::READ_OK.union(Access::WRITE_OK);
        Ok(rustix::fs::accessat(&dir, name, want, AtFlags::EACCESS).is_ok())
    };
    let is_plain = object.seen.kind == FileKind::Regular && object.attrs.mode & SET_ID == 0;
    is_plain && is_writable().unwrap_or(false)
}

/// Whether the system protects the objects of other users from hard links. Assumed of a Linux that
/// does not say it.
fn has_protected_links() -> bool {
    let setting = || std::fs::read("/proc/sys/fs/protected_hardlinks");
    cfg!(target_os = "linux") && setting().map_or(true, |setting| !setting.starts_with(b"0"))
}

/// Creates a hard link.
fn link(of: (&Target, &BasePath), to: (&Target, &BasePath)) -> io::Result<()> {
    let ((of_dir, of_name), (dir, name)) = (of.0.parent(of.1)?, to.0.parent(to.1)?);
    Ok(rustix::fs::linkat(&of_dir, of_name, &dir, name, AtFlags::empty())?)
}

type DirAndName<'a, D> = (&'a D, &'a [u8]);

/// Copies the content of a file: as a reflink if the host supports that, otherwise everything
/// except holes.
fn content<D: AsFd>(source: &File, to: DirAndName<'_, D>, object: &TargetObject) -> io::Result<()> {
    let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let copy: File = rustix::fs::openat(to.0, to.1, made, Mode::RUSR | Mode::WUSR)?.into();
    #[cfg(target_os = "linux")]
    if object.seen.size > 0 && rustix::fs::ioctl_ficlone(&copy, source).is_ok() {
        return Ok(());
    }
    let mut at = 0;
    while at < object.seen.size {
        let (start, end) = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(start) => {
                (start, rustix::fs::seek(source, SeekFrom::Hole(start)).unwrap_or(u64::MAX))
            }
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(_) => (at, u64::MAX),
        };
        rustix::fs::seek(source, SeekFrom::Start(start))?;
        rustix::fs::seek(&copy, SeekFrom::Start(start))?;
        let length = end.min(object.seen.size).saturating_sub(start);
        let copied = io::copy(&mut io::Read::take(source, length), &mut &copy)?;
        if copied < length {
            break;
        }
        at = start + length;
    }
    copy.set_len(object.seen.size)
}

/// Creates a FIFO, socket or device like another one.
#[cfg(target_os = "linux")]
fn special<D: AsFd>(from: DirAndName<'_, D>, to: DirAndName<'_, D>) -> io::Result<()> {
    let stat = rustix::fs::statat(from.0, from.1, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::mknodat(to.0, to.1, kind, mode, stat.st_rdev)?)
}

/// No portable call creates special files in an open directory.
#[cfg(not(target_os = "linux"))]
fn special<D: AsFd>(_from: DirAndName<'_, D>, _to: DirAndName<'_, D>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
