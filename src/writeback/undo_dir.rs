//! [`UndoDir`]: the directory beside a session for what an apply replaced and removed, and for the
//! record of how to restore it.
//!
//! Each run has a directory of its own, its round. A file `record` names the valid round; it is
//! replaced by one rename once the round is complete. Everything that the record does not name was
//! left by an interrupted run, and is removed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::clone::{Cloner, Hooks};
use super::object::entry;
use super::{
    DIRECTORY, Result, Staging, Target, TargetError, check_entries, check_own, rename_new, sweep,
    write_whole, xattrs,
};
use crate::base::BasePath;

/// Name of the record, and its name while it is written.
const RECORD: &str = "record";
const RECORD_BEGUN: &str = "record-unfinished";

/// The list of directories of the target that are opened for a while, and its temporary name.
const OPENED: &str = "opened";
const OPENED_BEGUN: &str = "opened-unfinished";

/// The directory of objects that an undo left out. They stay at one path until the next apply.
pub const LEFT_OUT: &str = "left-out";

/// Name of a copy while it is made.
const COPY: &str = "copy";

/// Whether an undo directory has entries of this name: its files, or a round, which is named by a
/// time.
fn is_ours(name: &[u8]) -> bool {
    let ours = [RECORD, RECORD_BEGUN, OPENED, OPENED_BEGUN, COPY, LEFT_OUT];
    let is_of_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    ours.iter().any(|ours| ours.as_bytes() == name) || name.iter().all(is_of_time)
}

/// An open undo directory, locked exclusively.
#[derive(Debug)]
pub struct UndoDir {
    target: Target,
    dir: File,
}

impl UndoDir {
    /// Opens the directory `path`, and creates it if `made` is set; waits while another process has
    /// it locked. `None` if it does not exist.
    ///
    /// # Errors
    /// The host refuses, or the directory belongs to another user or is open to others.
    pub fn open(path: &Path, made: bool) -> Result<Option<Self>> {
        let opened = || -> io::Result<Option<(Target, File)>> {
            if made {
                match fs::DirBuilder::new().mode(0o700).create(path) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            let named = match path.symlink_metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                named => named?,
            };
            let target = Target::open(path).map_err(|error| error.source)?;
            let dir = target.readable(&BasePath::root())?;
            let meta = dir.metadata()?;
            if (named.dev(), named.ino()) != (meta.dev(), meta.ino()) {
                // A symbolic link, or a directory that was just replaced.
                return Err(ErrorKind::NotADirectory.into());
            }
            check_own(&dir)?;
            check_entries(&dir, is_ours)?;
            rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
            #[cfg(target_os = "linux")]
            match rustix::fs::fremovexattr(&dir, xattrs::DEFAULT_ACL) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(Some((target, dir)))
        };
        let opened = opened().map_err(|source| TargetError { path: path.to_owned(), source })?;
        Ok(opened.map(|(target, dir)| Self { target, dir }))
    }

    /// The directory's path, for messages.
    pub fn path(&self) -> &Path {
        self.target.path()
    }

    /// The directory as a [`Target`], for reading.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The record, if there is one.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn record(&self) -> Result<Option<File>> {
        self.read(RECORD)
    }

    /// The list of what is opened in the target, if an interrupted run left one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn opened(&self) -> Result<Option<File>> {
        self.read(OPENED)
    }

    /// Makes this, synced, the list of what is opened in the target.
    ///
    /// # Errors
    /// The host refuses.
    pub fn note_opened(
        &self,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        write_whole(&self.dir, (OPENED_BEGUN, OPENED), write).map_err(|source| self.error(source))
    }

    /// Removes that list: all is closed.
    ///
    /// # Errors
    /// The host refuses.
    pub fn forget_opened(&self) -> Result<()> {
        let list = entry(&BasePath::root(), OPENED.as_bytes());
        self.unmake(&list).map_err(|source| self.error(source))
    }

    fn read(&self, name: &str) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// Creates the directory `round`, if it does not exist.
    ///
    /// # Errors
    /// The host refuses.
    pub fn begin(&self, round: &str) -> Result<()> {
        match rustix::fs::mkdirat(&self.dir, round, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// The path of `name` in the directory `round`.
    pub fn place(round: &str, name: &[u8]) -> BasePath {
        BasePath::from_bytes(&[round.as_bytes(), b"/", name].concat()).unwrap_or_default()
    }

    /// The path of `place`, for messages.
    pub fn shown(&self, place: &BasePath) -> PathBuf {
        self.path().join(OsStr::from_bytes(place.as_bytes()))
    }

    /// Moves the object at `from` to `place`, or copies it if that is on another filesystem.
    /// Replaces what an interrupted run left at `place`.
    ///
    /// # Errors
    /// The host refuses.
    pub fn receive(
        &self,
        from: (&Target, &BasePath),
        place: &BasePath,
        cloner: &mut Cloner<'_>,
    ) -> Result<()> {
        let moved = || -> io::Result<bool> {
            self.unmake(place)?;
            let (dir, name) = from.0.parent(from.1)?;
            let (to, to_name) = self.target.parent(place)?;
            match rename_new((dir.as_fd(), name), (to.as_fd(), to_name)) {
                Err(error) if error.kind() == ErrorKind::CrossesDevices => Ok(false),
                Err(error) => Err(error),
                Ok(()) => Ok(true),
            }
        };
        match moved().map_err(|source| self.target.error(place, source))? {
            true => Ok(()),
            false => cloner.copy(from, (&self.target, place), Hooks::NONE),
        }
    }

    /// Replaces the file at `place` by an independent copy of it, or, if given, by a hard link of
    /// `copy`, which is one.
    ///
    /// # Errors
    /// The host refuses.
    pub fn separate(
        &self,
        place: &BasePath,
        copy: Option<&BasePath>,
        staging: &Staging,
    ) -> Result<()> {
        let temporary = BasePath::from_bytes(COPY.as_bytes()).unwrap_or_default();
        let done = || -> io::Result<()> {
            self.unmake(&temporary)?;
            match copy {
                None => {
                    let copied = (&self.target, &temporary);
                    Cloner::new(staging)
                        .copy((&self.target, place), copied, Hooks::NONE)
                        .map_err(|error| error.source)?;
                }
                Some(copy) => {
                    let (dir, name) = self.target.parent(copy)?;
                    let to = temporary.as_bytes();
                    rustix::fs::linkat(&dir, name, &self.dir, to, AtFlags::empty())?;
                }
            }
            let (dir, name) = self.target.parent(place)?;
            Ok(rustix::fs::renameat(&self.dir, temporary.as_bytes(), &dir, name)?)
        };
        done().map_err(|source| self.target.error(place, source))
    }

    /// Syncs everything, and replaces the record.
    ///
    /// # Errors
    /// The host refuses.
    pub fn commit(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        write_whole(&self.dir, (RECORD_BEGUN, RECORD), write).map_err(|source| self.error(source))
    }

    /// Removes everything but the record, the directory `round` and, if `is_undone`, what undos
    /// left out, as far as the host allows.
    ///
    /// # Errors
    /// The host refuses: some objects are left.
    pub fn sweep_all_but(&self, round: &str, is_undone: bool) -> Result<()> {
        let mut failed = None;
        for name in self.target.names(&BasePath::root())? {
            let is_left_out = is_undone && name == LEFT_OUT.as_bytes();
            if name != round.as_bytes() && name != RECORD.as_bytes() && !is_left_out {
                let place = entry(&BasePath::root(), &name);
                if let Err(source) = self.unmake(&place) {
                    failed.get_or_insert_with(|| self.target.error(&place, source));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes the directory and its content; the record first.
    ///
    /// # Errors
    /// The host refuses.
    pub fn remove(self) -> Result<()> {
        let removed = || -> io::Result<()> {
            self.unmake(&entry(&BasePath::root(), RECORD.as_bytes()))?;
            self.dir.sync_all()?;
            sweep::sweep(&self.dir)?;
            fs::remove_dir(self.path())
        };
        removed().map_err(|source| self.error(source))
    }

    /// Removes the directory `path` if it is empty.
    pub fn remove_empty(path: &Path) {
        let _not_empty = fs::remove_dir(path);
    }

    /// Removes the object at `place`, with its content.
    fn unmake(&self, place: &BasePath) -> io::Result<()> {
        let (dir, name) = self.target.parent(place)?;
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        // The directory is ours, and its lock keeps other processes out.
        rustix::fs::chmodat(&dir, name, Mode::RWXU, AtFlags::empty())?;
        sweep::sweep(&File::from(rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?))?;
        Ok(rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?)
    }

    /// Free bytes on the filesystem where the directory `path` is or would be; `None` if that is
    /// the filesystem with the device number `dev`.
    ///
    /// # Errors
    /// The parent directory cannot be accessed.
    pub fn room_apart_from(path: &Path, dev: u64) -> Result<Option<u64>> {
        let above = path.parent().unwrap_or(Path::new("/"));
        let looked = || -> io::Result<Option<u64>> {
            if fs::metadata(above)?.dev() == dev {
                return Ok(None);
            }
            let stat = rustix::fs::statvfs(above)?;
            Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
        };
        looked().map_err(|source| TargetError { path: above.to_owned(), source })
    }

    /// The block size of the filesystem where the directory `path` is or would be, in bytes.
    ///
    /// # Errors
    /// The parent directory cannot be accessed.
    pub fn block_bytes(path: &Path) -> Result<u64> {
        let above = path.parent().unwrap_or(Path::new("/"));
        let stat = rustix::fs::statvfs(above).map_err(io::Error::from);
        let stat = stat.map_err(|source| TargetError { path: above.to_owned(), source })?;
        Ok(stat.f_frsize.max(1))
    }

    fn error(&self, source: io::Error) -> TargetError {
        TargetError { path: self.path().to_owned(), source }
    }
}

/// Unlocks explicitly, for the same reason as [`Staging`](super::Staging).
impl Drop for UndoDir {
    fn drop(&mut self) {
        let _gone_with_the_descriptor = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }
}
