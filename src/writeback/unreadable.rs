//! Opens files for reading, and reads extended attributes, also of files whose mode keeps their
//! owner out.
//!
//! Such a file gets a wider mode for a moment. The staging notes its own mode before, so that the
//! next run restores it if this one is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Attrs, Result, Staging, Target, TargetObject, Xattrs, attrs, effective_user};
use crate::base::BasePath;
use crate::vfs::FileKind;

/// The mode bit that lets an owner read a file.
const OWNER_READ: u32 = 0o400;

/// A file whose mode is changed.
struct WidenedFile<'a> {
    /// The directory in which its path is.
    top: &'a Path,
    path: BasePath,
    ino: u64,
    /// The mode that it is to have again.
    mode: u32,
}

impl<'a> WidenedFile<'a> {
    fn bytes(&self) -> Vec<u8> {
        let (ino, mode, top) = (self.ino, self.mode, self.top.as_os_str().as_bytes());
        [format!("{ino} {mode}").as_bytes(), top, self.path.as_bytes()].join(&0)
    }

    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut parts = bytes.split(|byte| *byte == 0);
        let (ino, mode) = std::str::from_utf8(parts.next()?).ok()?.split_once(' ')?;
        Some(Self {
            ino: ino.parse().ok()?,
            mode: mode.parse().ok()?,
            top: Path::new(OsStr::from_bytes(parts.next()?)),
            path: BasePath::from_bytes(parts.next()?)?,
        })
    }
}

/// Opens a regular file for reading.
pub(super) fn open_file(dir: &impl AsFd, name: &[u8]) -> io::Result<File> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, read, Mode::empty())?.into())
}

/// Opens a regular file for reading, also one whose mode keeps its owner out.
pub(super) fn open(
    staging: &Staging,
    (target, path): (&Target, &BasePath),
    object: &TargetObject,
) -> io::Result<File> {
    let (dir, name) = target.parent(path)?;
    match open_file(&dir, name) {
        Err(error)
            if Errno::from_io_error(&error) == Some(Errno::ACCESS)
                && object.attrs.uid == effective_user() =>
        {
            // The descriptor stays valid when the mode is restored.
            while_readable(staging, (target, path), object, || open_file(&dir, name))?
        }
        opened => opened,
    }
}

/// The extended attributes of an object, also of a file whose mode keeps its owner out.
pub(super) fn xattrs(
    staging: &Staging,
    (target, path): (&Target, &BasePath),
    object: &TargetObject,
) -> Result<Xattrs> {
    let found = target.xattrs(path)?;
    let is_ours = object.attrs.uid == effective_user() && object.seen.kind == FileKind::Regular;
    if !is_ours || found.unreadable().is_none() {
        return Ok(found);
    }
    while_readable(staging, (target, path), object, || target.xattrs(path))
        .map_err(|source| target.error(path, source))?
}

/// Runs `read` while the file has a mode that lets its owner read it.
fn while_readable<T>(
    staging: &Staging,
    (target, path): (&Target, &BasePath),
    object: &TargetObject,
    read: impl FnOnce() -> T,
) -> io::Result<T> {
    let (dir, name) = target.parent(path)?;
    let (ino, mode) = (object.seen.ino, object.attrs.mode);
    let widened = WidenedFile { top: target.path(), path: path.clone(), ino, mode };
    staging.note_mode(&widened.bytes())?;
    let set = |attrs: &Attrs| attrs::mode(dir.as_fd(), name, attrs);
    set(&Attrs { mode: mode | OWNER_READ, ..object.attrs.clone() })?;
    let done = read();
    set(&object.attrs)?;
    staging.forget_mode()?;
    Ok(done)
}

/// Restores the mode of a file that a killed run left with a wider one.
pub(super) fn restore(noted: &[u8]) -> Result<()> {
    let Some(WidenedFile { top, path, ino, mode }) = WidenedFile::of(noted) else { return Ok(()) };
    let restored = || -> Result<()> {
        let target = Target::open(top)?;
        let now = target.object(&path)?.filter(|now| now.seen.ino == ino);
        if let Some(now) = now.filter(|now| now.attrs.mode == mode | OWNER_READ) {
            target.set(&path, &Attrs { mode, ..now.attrs })?;
        }
        Ok(())
    };
    match restored() {
        Err(error) if error.is_of_object() => {
            tracing::warn!(%error, "its mode, which a killed run changed, is not restored");
            Ok(())
        }
        restored => restored,
    }
}
