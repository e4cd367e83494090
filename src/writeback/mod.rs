//! Writes to a host directory, for `acetate apply`: the only module that does.
//!
//! Every operation goes by name in a directory that [`Beneath`] opened. No symbolic link is
//! followed, and nothing outside the directory, or mounted below it, is reached. New objects are
//! first created in a [`Staging`], and then placed by one rename each; removed objects are moved
//! there by one rename.
//!
//! This module does not depend on sessions. All methods block.

mod attrs;
mod clone;
mod error;
mod mounts;
mod object;
mod seen;
mod staged;
mod staging;
mod sweep;
mod undo_dir;
mod unreadable;
mod xattrs;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::base::{BasePath, Beneath, KEPT};
use crate::vfs::Time;

pub use attrs::{Attrs, ChangedByOther, Unset};
pub use clone::{Cloner, Hooks, check_copy, may_link};
pub use error::TargetError;
pub use object::TargetObject;
pub use seen::SeenObject;
pub use staged::StagedFile;
pub use staging::{Staging, StagingDir, StagingSlot};
pub use undo_dir::{LEFT_OUT, UndoDir};
pub use xattrs::Xattrs;

/// The result of an operation on a host directory.
pub type Result<T> = std::result::Result<T, TargetError>;

/// Flags to open a directory to sync it, or to read its entries.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory in which an entry came or went, with its mtime before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedDir {
    /// Device and inode number.
    pub id: (u64, u64),
    /// The mtime before.
    pub before: Time,
    /// The mtime after.
    pub after: Time,
}

impl ChangedDir {
    /// Changes the entries of an open directory.
    // The fields' types differ from platform to platform.
    #[allow(clippy::unnecessary_cast)]
    fn around(dir: &impl AsFd, change: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let look = || rustix::fs::fstat(dir);
        let mtime =
            |stat: &Stat| Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 };
        let before = look()?;
        change()?;
        let id = (before.st_dev as u64, before.st_ino as u64);
        Ok(Self { id, before: mtime(&before), after: mtime(&look()?) })
    }
}

/// A host directory that is written to.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    beneath: Beneath,
}

impl Target {
    /// Opens the directory `path`, which may be named through symbolic links.
    ///
    /// # Errors
    /// There is no such directory, or we may not enter it.
    pub fn open(path: &Path) -> Result<Self> {
        let beneath =
            Beneath::open(path).map_err(|source| TargetError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), beneath })
    }

    /// The object at `path`, if there is one; a symbolic link is not followed.
    ///
    /// # Errors
    /// The object cannot be accessed, or `path` or an ancestor is a mount point.
    pub fn look(&self, path: &BasePath) -> Result<Option<SeenObject>> {
        self.looked(path).map_err(|source| self.error(path, source))
    }

    fn looked(&self, path: &BasePath) -> io::Result<Option<SeenObject>> {
        let (dir, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let seen = SeenObject::at(dir.as_fd(), name)?;
        // Opening a directory fails if it is a mount point.
        if seen.as_ref().is_some_and(SeenObject::is_dir) {
            self.beneath.dir(path)?;
        }
        Ok(seen)
    }

    /// Whether entries of the directory `path` can be created and removed. `false` without
    /// permission, or if it is on another filesystem than the target's top.
    ///
    /// # Errors
    /// It is no directory, cannot be accessed, or its filesystem is read-only.
    pub fn takes_entries(&self, path: &BasePath) -> Result<bool> {
        let looked = || -> io::Result<bool> {
            let (dir, top) = (self.beneath.dir(path)?, self.beneath.dir(&BasePath::root())?);
            let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| stat.st_dev);
            if device(&dir)? != device(&top)? {
                return Ok(false);
            }
            let want = rustix::fs::Access::WRITE_OK.union(rustix::fs::Access::EXEC_OK);
            match rustix::fs::accessat(&dir, c".", want, AtFlags::EACCESS) {
                Ok(()) => Ok(true),
                Err(Errno::ACCESS | Errno::PERM) => Ok(false),
                // The system cannot check for the effective user.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
                Err(error) => Err(error.into()),
            }
        };
        looked().map_err(|source| self.error(path, source))
    }

    /// Moves the object at `path` to a slot of the staging; if it `stays`, adds a hard link there
    /// instead. Returns the directory that held it.
    ///
    /// # Errors
    /// The object is gone, or the host refuses.
    pub fn take(
        &self,
        path: &BasePath,
        stays: bool,
        to: (&Staging, StagingSlot),
    ) -> Result<ChangedDir> {
        let taken = || -> io::Result<ChangedDir> {
            let (dir, name) = self.parent(path)?;
            let (staged_in, slot) = to.0.place(StagingDir::Taken, to.1);
            ChangedDir::around(&dir, || match stays {
                true => {
                    rustix::fs::linkat(&dir, name, staged_in, &*slot, AtFlags::empty())?;
                    Ok(())
                }
                false => rename_new((dir.as_fd(), name), (staged_in, slot.as_bytes())),
            })
        };
        taken().map_err(|source| self.error(path, source))
    }

    /// Moves the content of a staging slot to `path`, which must not exist; with `replaces`, it may
    /// be a file and is replaced atomically. Returns the directory that holds it.
    ///
    /// # Errors
    /// The host refuses; AlreadyExists if there is an object at `path`.
    pub fn put(
        &self,
        from: (&Staging, StagingDir, StagingSlot),
        path: &BasePath,
        replaces: bool,
    ) -> Result<ChangedDir> {
        let put = || -> io::Result<ChangedDir> {
            let (dir, name) = self.parent(path)?;
            let (staged_in, slot) = from.0.place(from.1, from.2);
            ChangedDir::around(&dir, || match replaces {
                true => Ok(rustix::fs::renameat(staged_in, &*slot, &dir, name)?),
                false => rename_new((staged_in, slot.as_bytes()), (dir.as_fd(), name)),
            })
        };
        put().map_err(|source| self.error(path, source))
    }

    /// Keeps the file at `path` in a slot of the staging before it is replaced: as a hard link, or
    /// as a copy if the host cannot link it.
    ///
    /// # Errors
    /// The file is gone, or the host refuses.
    pub fn keep_replaced(&self, path: &BasePath, to: (&Staging, StagingSlot)) -> Result<()> {
        let place = Staging::path_of(StagingDir::Replaced, to.1);
        let (staged_in, slot) = to.0.place(StagingDir::Replaced, to.1);
        let linked = || -> io::Result<bool> {
            let (dir, name) = self.parent(path)?;
            match rustix::fs::linkat(&dir, name, staged_in, &*slot, AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => Ok(true),
                Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        if linked().map_err(|source| self.error(path, source))? {
            return Ok(());
        }
        // Renamed once complete, so that a killed run does not leave a partial copy under the final
        // name.
        let part = BasePath::from_bytes(&[place.as_bytes(), b"-unfinished"].concat());
        let part = part.unwrap_or_default();
        let (_, part_name) = part.split_bytes();
        let unmade = match rustix::fs::unlinkat(staged_in, part_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        };
        unmade.map_err(|source| self.error(&part, source))?;
        Cloner::new(to.0).copy((self, path), (self, &part), Hooks::NONE)?;
        rustix::fs::renameat(staged_in, part_name, staged_in, &*slot)
            .map_err(|error| self.error(&part, error.into()))
    }

    /// Moves an object that was taken from `path` to [`KEPT`] at the top, which only we may enter,
    /// under a free name. Returns its new path.
    ///
    /// # Errors
    /// The host refuses, or the directory belongs to another user or is open to others.
    pub fn keep(
        &self,
        from: (&Staging, StagingDir, StagingSlot),
        path: &BasePath,
    ) -> Result<PathBuf> {
        let kept = self.path.join(KEPT);
        let put = || -> io::Result<PathBuf> {
            let top = self.readable(&BasePath::root())?;
            match rustix::fs::mkdirat(&top, KEPT, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let dir = own_dir(&top, KEPT)?;
            let (staged_in, slot) = from.0.place(from.1, from.2);
            let (_, name) = path.split_bytes();
            let mut number = 0_u64;
            loop {
                let mut free = name.to_vec();
                if number > 0 {
                    // Leaves space for the suffix: a name has at most 255 bytes.
                    free.truncate(200);
                    free.extend_from_slice(format!(".{number}").as_bytes());
                }
                match rename_new((staged_in, slot.as_bytes()), (dir.as_fd(), &free)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                    Err(error) => return Err(error),
                    Ok(()) => return Ok(kept.join(OsStr::from_bytes(&free))),
                }
            }
        };
        put().map_err(|source| TargetError { path: kept.clone(), source })
    }

    /// Sets the attributes of the object at `path` that differ, as far as we have permission.
    ///
    /// # Errors
    /// The object is gone, or the host refuses for another reason than missing permission.
    pub fn set(&self, path: &BasePath, attrs: &Attrs) -> Result<Unset> {
        let set = || -> io::Result<Unset> {
            if path.is_root() {
                return attrs::set(self.beneath.dir(path)?.as_fd(), b".", attrs);
            }
            let (dir, name) = self.parent(path)?;
            attrs::set(dir.as_fd(), name, attrs)
        };
        set().map_err(|source| self.error(path, source))
    }

    /// Sets the attributes of the object at `path` in which `to` differs from `from`, as
    /// [`Target::set`] does. One that is neither as in `from` nor as in `to` stays as it is.
    ///
    /// # Errors
    /// As [`Target::set`].
    pub fn change(
        &self,
        path: &BasePath,
        from: &Attrs,
        to: &Attrs,
    ) -> Result<(Unset, ChangedByOther)> {
        let changed = || {
            if path.is_root() {
                return attrs::change(self.beneath.dir(path)?.as_fd(), b".", from, to);
            }
            let (dir, name) = self.parent(path)?;
            attrs::change(dir.as_fd(), name, from, to)
        };
        changed().map_err(|source| self.error(path, source))
    }

    /// The extended attributes of the object at `path` that can be carried over.
    ///
    /// # Errors
    /// The object is gone, or the attributes cannot be read.
    pub fn xattrs(&self, path: &BasePath) -> Result<Xattrs> {
        let read = || -> io::Result<Xattrs> {
            let (dir, name) = self.parent(path)?;
            xattrs::read(dir.as_fd(), name)
        };
        read().map_err(|source| self.error(path, source))
    }

    /// Syncs the filesystem, so that everything done so far survives a power loss.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<()> {
        let synced = || -> io::Result<()> { sync_all(&self.readable(&BasePath::root())?) };
        synced().map_err(|source| self.error(&BasePath::root(), source))
    }

    /// The directory's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, path: &BasePath, source: io::Error) -> TargetError {
        TargetError { path: self.path.join(OsStr::from_bytes(path.as_bytes())), source }
    }

    /// Opens the parent directory of `path`, and returns the name in it. Fails for the top.
    fn parent<'p>(&self, path: &'p BasePath) -> io::Result<(OwnedFd, &'p [u8])> {
        let (parent, name) = path.split_bytes();
        let parent = BasePath::from_bytes(parent).filter(|_| !path.is_root());
        let parent = parent.ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.beneath.dir(&parent)?, name))
    }

    fn readable(&self, path: &BasePath) -> io::Result<File> {
        let dir = self.beneath.dir(path)?;
        Ok(rustix::fs::openat(&dir, c".", DIRECTORY, Mode::empty())?.into())
    }
}

/// The effective user ID of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether an error means that there is no object at a path.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens the directory `name` in `top`, if only we may enter it.
fn own_dir(top: &File, name: &str) -> io::Result<File> {
    let dir: File = rustix::fs::openat(top, name, DIRECTORY, Mode::empty())?.into();
    check_own(&dir)?;
    Ok(dir)
}

/// Fails if other users may enter the directory, or if it belongs to another user.
fn check_own(dir: &File) -> io::Result<()> {
    let meta = dir.metadata()?;
    let is_ours = meta.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || meta.mode() & 0o077 != 0 {
        let what = match is_ours {
            true => format!("open to other users (mode {:04o})", meta.mode() & 0o7777),
            false => "of another user".to_owned(),
        };
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Fails if a directory has an entry that is not ours: it may be a person's, though its name is
/// reserved. Clients of NFS and Finder leave entries in any directory; those are no one's data.
fn check_entries(dir: &File, is_ours: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    let is_left = |name: &[u8]| name.starts_with(b".nfs") || name == b".DS_Store";
    for name in sweep::names(dir)? {
        let name = name.to_bytes();
        if !is_ours(name) && !is_left(name) && !sweep::is_moved(name) {
            let name = String::from_utf8_lossy(name);
            let what = format!("holds `{name}`, which acetate did not make");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
    }
    Ok(())
}

/// Renames, and fails if the destination exists.
fn rename_new(from: (BorrowedFd<'_>, &[u8]), to: (BorrowedFd<'_>, &[u8])) -> io::Result<()> {
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
        // The filesystem does not support RENAME_NOREPLACE.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if SeenObject::at(to.0, to.1)?.is_some() {
                return Err(Errno::EXIST.into());
            }
            Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?)
        }
        other => Ok(other?),
    }
}

/// Writes a file atomically and durably, after syncing its filesystem. The file has the name
/// `begun` while it is written, and `whole` once it is complete.
fn write_whole(
    dir: &File,
    (begun, whole): (&str, &str),
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file: File = rustix::fs::openat(dir, begun, flags, mode)?.into();
    let mut out = BufWriter::new(&file);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync_all()?;
    sync_all(dir)?;
    rustix::fs::renameat(dir, begun, dir, whole)?;
    dir.sync_all()
}

/// Syncs the filesystem of the open directory.
fn sync_all(dir: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(dir)?;
    #[cfg(not(target_os = "linux"))]
    rustix::fs::sync();
    dir.sync_all()
}
