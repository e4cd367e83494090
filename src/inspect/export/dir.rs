//! Exports into a directory, through descriptors and without following links.
//!
//! Only the innermost directory is open, at any depth. Attributes are set last: a directory is
//! accessible to its owner alone until it is complete, and its entries do not change its times.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, fchmod, fchown, fstat,
    ftruncate, futimens, linkat, mkdirat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, pwrite};

use super::super::error::{InspectError, Result};
use super::{ExportItem, ExportSink, ItemOutcome, PIECE_BYTES, last_name, write_error};
use crate::vfs::{Attr, FileKind, Time};

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The setuid and setgid bits.
const SET_ID: u32 = 0o6000;

/// A directory that is being filled.
pub struct OutputDir {
    path: PathBuf,
    root: OwnedFd,
    /// The innermost open directory.
    current: OwnedFd,
    levels: Vec<DirLevel>,
    buffer: Vec<u8>,
    keep: Keep,
    not_owned: u64,
    without_set_id: u64,
    unmade_devices: u64,
}

/// Attributes that are kept only on request, because they grant rights on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Setuid and setgid bits of files whose owner could be set.
    pub set_id: bool,
    /// Block and character devices.
    pub devices: bool,
}

/// A directory on the path from the root to the innermost one.
struct DirLevel {
    /// Device and inode number, to recognize the directory on the way back.
    id: (u64, u64),
    attr: Attr,
}

impl OutputDir {
    /// Opens the empty directory `path`, or creates it.
    ///
    /// # Errors
    /// The directory is not empty, or cannot be created.
    pub fn create(path: &Path, keep: Keep) -> Result<Self> {
        let failed = |error: Errno| write_error(path, error);
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        // `path` itself may be a symbolic link; nothing below it is followed.
        let root =
            openat(CWD, path, OPEN_DIR & !OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
        let mut entries = fs::read_dir(path).map_err(|error| write_error(path, error))?;
        if entries.next().is_some() {
            let what = format!("{}: not an empty directory", path.display());
            return Err(InspectError::Invalid { what });
        }
        let current = openat(&root, ".", OPEN_DIR, Mode::empty()).map_err(failed)?;
        let (levels, buffer) = (Vec::new(), vec![0; PIECE_BYTES]);
        let (not_owned, without_set_id, unmade_devices) = (0, 0, 0);
        let path = path.to_owned();
        Ok(Self {
            path,
            root,
            current,
            levels,
            buffer,
            keep,
            not_owned,
            without_set_id,
            unmade_devices,
        })
    }

    /// Objects owned by this process's user instead, because only root may set an owner.
    pub fn not_owned(&self) -> u64 {
        self.not_owned
    }

    /// The number of files that lost a setuid or setgid bit.
    pub fn without_set_id(&self) -> u64 {
        self.without_set_id
    }

    /// Device nodes that were left out by [`Keep::devices`].
    pub fn unmade_devices(&self) -> u64 {
        self.unmade_devices
    }

    fn error(&self, path: &[u8], source: impl Into<io::Error>) -> InspectError {
        write_error(self.path.join(OsStr::from_bytes(path)), source)
    }

    fn write_file(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome> {
        let failed =
            |error: Errno| write_error(self.path.join(OsStr::from_bytes(item.path)), error);
        let how =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.current, item.name(), how, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(failed)?;
        let attr = item.object.attr();
        // Before any data: detects a size that the filesystem does not support.
        match ftruncate(&file, attr.size) {
            Ok(()) => {}
            Err(Errno::FBIG | Errno::INVAL) => {
                unlinkat(&self.current, item.name(), AtFlags::empty()).map_err(failed)?;
                let why = format!("this filesystem cannot hold a file of {} bytes", attr.size);
                return Ok(ItemOutcome::LeftOut(why));
            }
            Err(error) => return Err(failed(error)),
        }
        let mut at = 0;
        while let Some(data) = item.next_data(at)? {
            at = data.start;
            while at < data.end {
                let length = self.buffer.len().min((data.end - at) as usize);
                item.read(at, &mut self.buffer[..length])?;
                write_all(&file, &self.buffer[..length], at).map_err(failed)?;
                at += length as u64;
            }
        }
        let owned = finish(file.as_fd(), attr, self.keep.set_id).map_err(failed)?;
        self.not_owned += u64::from(!owned);
        let is_kept = owned && self.keep.set_id;
        self.without_set_id += u64::from(attr.mode & SET_ID != 0 && !is_kept);
        Ok(ItemOutcome::Written)
    }

    /// Sets the attributes of an object in the innermost directory; not for regular files.
    fn finish_at(&mut self, item: &ExportItem<'_>) -> rustix::io::Result<()> {
        let (name, attr) = (item.name(), item.object.attr());
        let owner = (Some(Uid::from_raw(attr.uid)), Some(Gid::from_raw(attr.gid)));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let owned = rustix::fs::chownat(&self.current, name, owner.0, owner.1, flags);
        self.not_owned += u64::from(!is_owned(owned)?);
        if attr.kind != FileKind::Symlink {
            let mode = Mode::from_bits_truncate((attr.mode & !SET_ID) as _);
            rustix::fs::chmodat(&self.current, name, mode, AtFlags::empty())?;
        }
        utimensat(&self.current, name, &times(attr), flags)
    }

    /// Creates a named pipe, socket or device.
    #[cfg(not(target_vendor = "apple"))]
    fn make_special(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome> {
        let attr = item.object.attr();
        let is_device = matches!(attr.kind, FileKind::Block | FileKind::Character);
        if is_device && !self.keep.devices {
            let (major, minor) = (attr.rdev.major, attr.rdev.minor);
            let why = format!("a device ({major}, {minor}): not made by default");
            self.unmade_devices += 1;
            return Ok(ItemOutcome::LeftOut(why));
        }
        let kind = match attr.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::Block => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        };
        let device = rustix::fs::makedev(attr.rdev.major, attr.rdev.minor);
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(&self.current, item.name(), kind, mode, device) {
            Ok(()) => {}
            Err(Errno::PERM) => {
                return Ok(ItemOutcome::LeftOut("only root can make a device".to_owned()));
            }
            Err(error) => return Err(self.error(item.path, error)),
        }
        self.finish_at(item).map_err(|error| self.error(item.path, error))?;
        Ok(ItemOutcome::Written)
    }

    #[cfg(target_vendor = "apple")]
    fn make_special(&mut self, _: &ExportItem<'_>) -> Result<ItemOutcome> {
        Ok(ItemOutcome::LeftOut("cannot be made on this system".to_owned()))
    }

    /// Opens the directory that contains `path`.
    fn dir_of(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mut dir = openat(&self.root, ".", OPEN_DIR, Mode::empty())?;
        let above = path.len() - last_name(path).len();
        for name in path[..above].split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            dir = openat(&dir, name, OPEN_DIR, Mode::empty())?;
        }
        Ok(dir)
    }
}

impl ExportSink for OutputDir {
    fn enter(&mut self, dir: &ExportItem<'_>) -> Result<()> {
        let opened = if dir.path.is_empty() {
            openat(&self.root, ".", OPEN_DIR, Mode::empty())
        } else {
            mkdirat(&self.current, dir.name(), Mode::RWXU)
                .and_then(|()| openat(&self.current, dir.name(), OPEN_DIR, Mode::empty()))
        };
        let opened = opened.and_then(|fd| Ok((id_of(&fd)?, fd)));
        let (id, fd) = opened.map_err(|error| self.error(dir.path, error))?;
        self.levels.push(DirLevel { id, attr: dir.object.attr().clone() });
        self.current = fd;
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let done = match self.levels.last() {
            // Before the attributes, because they may deny the way back to the parent.
            Some(above) => {
                let parent = openat(&self.current, "..", OPEN_DIR, Mode::empty());
                let parent = parent.map_err(|error| self.error(b"", error))?;
                if id_of(&parent).map_err(|error| self.error(b"", error))? != above.id {
                    let what = "directories were moved while they were filled";
                    return Err(self.error(b"", io::Error::other(what)));
                }
                std::mem::replace(&mut self.current, parent)
            }
            None => openat(&self.root, ".", OPEN_DIR, Mode::empty())
                .map_err(|error| self.error(b"", error))?,
        };
        // On a directory, setgid only determines the group of new entries.
        let owned =
            finish(done.as_fd(), &level.attr, true).map_err(|error| self.error(b"", error))?;
        self.not_owned += u64::from(!owned);
        Ok(())
    }

    fn put(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome> {
        match item.kind() {
            FileKind::Regular => {
                if let Some(why) = item.unreadable() {
                    return Ok(ItemOutcome::LeftOut(why));
                }
                return self.write_file(item);
            }
            FileKind::Symlink => {
                let target = item.target()?;
                let made = symlinkat(&*target, &self.current, item.name());
                let made = made.and_then(|()| self.finish_at(item));
                made.map_err(|error| self.error(item.path, error))?;
            }
            _ => return self.make_special(item),
        }
        Ok(ItemOutcome::Written)
    }

    fn link(&mut self, item: &ExportItem<'_>, first: &[u8]) -> Result<()> {
        let made = self.dir_of(first).and_then(|dir| {
            linkat(&dir, last_name(first), &self.current, item.name(), AtFlags::empty())
        });
        made.map_err(|error| self.error(item.path, error))
    }

    fn whiteout(&mut self, path: &[u8]) -> Result<()> {
        let how =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.current, last_name(path), how, Mode::RUSR | Mode::WUSR);
        made.map(drop).map_err(|error| self.error(path, error))
    }
}

fn id_of(fd: &OwnedFd) -> rustix::io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    // The types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

fn write_all(file: &OwnedFd, mut data: &[u8], mut at: u64) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match pwrite(file, data, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                data = &data[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets owner, mode and times of an open object; returns whether the owner was set. Setuid and
/// setgid bits are set only with `keeps_set_id` and the right owner.
fn finish(fd: BorrowedFd<'_>, attr: &Attr, keeps_set_id: bool) -> rustix::io::Result<bool> {
    let owner = (Some(Uid::from_raw(attr.uid)), Some(Gid::from_raw(attr.gid)));
    let owned = is_owned(fchown(fd, owner.0, owner.1))?;
    // Without its owner, a setuid program would run as the user of this process.
    let mode = if owned && keeps_set_id { attr.mode } else { attr.mode & !SET_ID };
    fchmod(fd, Mode::from_bits_truncate(mode as _))?;
    futimens(fd, &times(attr))?;
    Ok(owned)
}

/// Whether a chown took effect; `false` where this process may not change the owner.
fn is_owned(given: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match given {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn times(attr: &Attr) -> Timestamps {
    let spec = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    Timestamps { last_access: spec(attr.atime), last_modification: spec(attr.mtime) }
}
