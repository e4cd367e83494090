//! Writing to a host directory, for `acetate apply`: the only place that does.
//!
//! Everything is done from open directories that [`Beneath`] found, by name: no symbolic link
//! is followed, and nothing outside the directory, or mounted below it, is reached. What is to
//! be put there is made in a [`Staging`] first, and then placed by one rename each; what goes is
//! taken there by one.
//!
//! Knows nothing of sessions, and not why something is to be written. All methods block.

mod attrs;
mod clone;
mod error;
mod object;
mod seen;
mod staged;
mod staging;
mod sweep;
mod undo_dir;
mod xattrs;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::base::{BasePath, Beneath, KEPT};

pub use attrs::{Attrs, Unset};
pub use clone::{Cloner, Hooks};
pub use error::TargetError;
pub use object::TargetObject;
pub use seen::SeenObject;
pub use staged::StagedFile;
pub use staging::{Shelf, Staging, StagingSlot};
pub use undo_dir::{LEFT_OUT, UndoDir};
pub use xattrs::Xattrs;

/// The result of a step.
pub type Result<T> = std::result::Result<T, TargetError>;

/// For opening a directory to sync it, or to read its entries.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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
    /// There is none, or we may not enter it.
    pub fn open(path: &Path) -> Result<Self> {
        let beneath =
            Beneath::open(path).map_err(|source| TargetError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), beneath })
    }

    /// What is at `path`, if there is anything; of a symbolic link the link.
    ///
    /// # Errors
    /// It cannot be looked at, or something is mounted there or above.
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
        // Whether something is mounted there shows where a directory is opened.
        if seen.as_ref().is_some_and(SeenObject::is_dir) {
            self.beneath.dir(path)?;
        }
        Ok(seen)
    }

    /// Whether entries of the directory `path` can be made and removed: `false` where we may
    /// not, or where it is of another filesystem than the target's top.
    ///
    /// # Errors
    /// It is no directory, cannot be looked at, or its filesystem is read-only.
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
                // Systems that cannot ask for the effective user.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
                Err(error) => Err(error.into()),
            }
        };
        looked().map_err(|source| self.error(path, source))
    }

    /// Takes what is at `path` into a slot of the staging: all of it, or one more name of the
    /// file if it `stays` where it is.
    ///
    /// # Errors
    /// It is gone, or the host refuses.
    pub fn take(&self, path: &BasePath, stays: bool, to: (&Staging, StagingSlot)) -> Result<()> {
        let taken = || -> io::Result<()> {
            let (dir, name) = self.parent(path)?;
            let (shelf, slot) = to.0.place(Shelf::Taken, to.1);
            match stays {
                true => {
                    rustix::fs::linkat(&dir, name, shelf, &*slot, AtFlags::empty())?;
                    Ok(())
                }
                false => rename_new((dir.as_fd(), name), (shelf, slot.as_bytes())),
            }
        };
        taken().map_err(|source| self.error(path, source))
    }

    /// Puts what is in a slot of the staging to `path`: where nothing is, or with `replaces`
    /// in place of a file, which is gone then. A reader finds the old file or the new one.
    ///
    /// # Errors
    /// The host refuses; AlreadyExists, where something came there.
    pub fn put(
        &self,
        from: (&Staging, Shelf, StagingSlot),
        path: &BasePath,
        replaces: bool,
    ) -> Result<()> {
        let put = || -> io::Result<()> {
            let (dir, name) = self.parent(path)?;
            let (shelf, slot) = from.0.place(from.1, from.2);
            match replaces {
                true => Ok(rustix::fs::renameat(shelf, &*slot, &dir, name)?),
                false => rename_new((shelf, slot.as_bytes()), (dir.as_fd(), name)),
            }
        };
        put().map_err(|source| self.error(path, source))
    }

    /// Keeps the file at `path` in a slot of the staging too, before it is replaced: as one more
    /// name of it, or as a copy where the host makes no link.
    ///
    /// # Errors
    /// It is gone, or the host refuses.
    pub fn keep_replaced(&self, path: &BasePath, to: (&Staging, StagingSlot)) -> Result<()> {
        let place = Staging::path_of(Shelf::Replaced, to.1);
        let (shelf, slot) = to.0.place(Shelf::Replaced, to.1);
        let linked = || -> io::Result<bool> {
            let (dir, name) = self.parent(path)?;
            match rustix::fs::linkat(&dir, name, shelf, &*slot, AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => Ok(true),
                Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        if linked().map_err(|source| self.error(path, source))? {
            return Ok(());
        }
        // It has its name when it is whole: a killed run leaves no part of it as if it was all.
        let part = BasePath::from_bytes(&[place.as_bytes(), b"-unfinished"].concat());
        let part = part.unwrap_or_default();
        let (_, part_name) = part.split_bytes();
        let unmade = match rustix::fs::unlinkat(shelf, part_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        };
        unmade.map_err(|source| self.error(&part, source))?;
        Cloner::default().copy((self, path), (self, &part), Hooks::NONE)?;
        rustix::fs::renameat(shelf, part_name, shelf, &*slot)
            .map_err(|error| self.error(&part, error.into()))
    }

    /// Moves what was taken from `path` to a directory at the top that only we may enter, where a
    /// name is free. Returns where it is.
    ///
    /// # Errors
    /// The host refuses, or the directory is another user's, or open to others.
    pub fn keep(&self, from: (&Staging, Shelf, StagingSlot), path: &BasePath) -> Result<PathBuf> {
        let kept = self.path.join(KEPT);
        let put = || -> io::Result<PathBuf> {
            let top = self.readable(&BasePath::root())?;
            match rustix::fs::mkdirat(&top, KEPT, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let dir = own_dir(&top, KEPT)?;
            let (shelf, slot) = from.0.place(from.1, from.2);
            let (_, name) = path.split_bytes();
            let mut number = 0_u64;
            loop {
                let mut free = name.to_vec();
                if number > 0 {
                    // A name has 255 bytes at most.
                    free.truncate(200);
                    free.extend_from_slice(format!(".{number}").as_bytes());
                }
                match rename_new((shelf, slot.as_bytes()), (dir.as_fd(), &free)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                    Err(error) => return Err(error),
                    Ok(()) => return Ok(kept.join(OsStr::from_bytes(&free))),
                }
            }
        };
        put().map_err(|source| TargetError { path: kept.clone(), source })
    }

    /// Gives what is at `path` these attributes, as far as it does not have them and we may.
    ///
    /// # Errors
    /// It is gone, or the host refuses for another reason than that we may not.
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

    /// The extended attributes of what is at `path`, as far as they can be carried over.
    ///
    /// # Errors
    /// It is gone, or they cannot be read.
    pub fn xattrs(&self, path: &BasePath) -> Result<Xattrs> {
        let read = || -> io::Result<Xattrs> {
            let (dir, name) = self.parent(path)?;
            xattrs::read(dir.as_fd(), name)
        };
        read().map_err(|source| self.error(path, source))
    }

    /// Makes all that was done so far survive a loss of power.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<()> {
        let synced = || -> io::Result<()> { sync_all(&self.readable(&BasePath::root())?) };
        synced().map_err(|source| self.error(&BasePath::root(), source))
    }

    /// The directory's path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, path: &BasePath, source: io::Error) -> TargetError {
        TargetError { path: self.path.join(OsStr::from_bytes(path.as_bytes())), source }
    }

    /// The directory that holds `path`, and the name in it. The top is in none.
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

/// The number of the user as whom the host sees us.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether an error says that nothing is at a path.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens the directory `name` in `top`, if only we may enter it.
fn own_dir(top: &File, name: &str) -> io::Result<File> {
    let dir: File = rustix::fs::openat(top, name, DIRECTORY, Mode::empty())?.into();
    check_own(&dir)?;
    Ok(dir)
}

/// Refuses a directory that others may enter, or that is another user's.
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

/// Renames to where nothing is.
fn rename_new(from: (BorrowedFd<'_>, &[u8]), to: (BorrowedFd<'_>, &[u8])) -> io::Result<()> {
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
        // Filesystems that do not know this flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if SeenObject::at(to.0, to.1)?.is_some() {
                return Err(Errno::EXIST.into());
            }
            Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?)
        }
        other => Ok(other?),
    }
}

/// Writes a file in a directory, after all else on its filesystem is synced: it has the first of
/// these names while it is written, and the second once it is whole.
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

/// Syncs the filesystem that the open directory is on.
fn sync_all(dir: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(dir)?;
    #[cfg(not(target_os = "linux"))]
    rustix::fs::sync();
    dir.sync_all()
}
