//! The directory `exports.d`, held open.
//!
//! It may belong to another user than the process, who could put a symbolic link or a pipe there:
//! the directory is not reached through a link, and only regular files up to a bound are read.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::limits::MAX_ADDED_BYTES;

/// Flags of every open: a pipe is not waited for.
const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK);

/// Whether a file is read through a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddedLinks {
    /// As an administrator may have written them.
    Follow,
    /// For a text that is written again: its reader may not be allowed to read the link's target.
    Refuse,
}

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryStat {
    /// The user that owns it.
    pub(super) uid: u32,
    /// Its permissions.
    pub(super) mode: u32,
    /// Whether it is a regular file.
    pub(super) is_file: bool,
    /// Its size in bytes.
    pub(super) size: u64,
    /// Whether it has no other name.
    pub(super) has_one_name: bool,
    /// Its device.
    pub(super) dev: u64,
    /// Its inode.
    pub(super) ino: u64,
}

/// The user that this process acts as.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory, open.
#[derive(Debug)]
pub(super) struct AddedDir(OwnedFd);

impl AddedDir {
    /// Opens the directory; `None` if it does not exist.
    ///
    /// # Errors
    /// It is a symbolic link or no directory, or cannot be opened.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | FLAGS;
        match openat(CWD, dir, flags, Mode::empty()) {
            Ok(opened) => Ok(Some(Self(opened))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(match dir.symlink_metadata() {
                Ok(found) if found.is_symlink() => link_error(),
                _ => error.into(),
            }),
        }
    }

    /// Its owner, group and mode.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }

    /// Opens an entry to read and write it, which is made with this mode if it does not exist. A
    /// link is not followed.
    ///
    /// # Errors
    /// `InvalidData` if it is a link; it cannot be made or opened.
    pub(super) fn open_or_make(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | FLAGS;
        let made = flags | OFlags::CREATE | OFlags::EXCL;
        match openat(&self.0, name, made, Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => match openat(&self.0, name, flags, Mode::empty()) {
                Err(Errno::LOOP) => Err(link_error()),
                opened => Ok(File::from(opened?)),
            },
            made => Ok(File::from(made?)),
        }
    }

    /// What an entry is, which is not followed if it is a link.
    ///
    /// # Errors
    /// It does not exist, or cannot be looked at.
    pub(super) fn stat(&self, name: &str) -> io::Result<EntryStat> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(EntryStat {
            uid: found.st_uid,
            mode: found.st_mode & 0o7777,
            is_file: FileType::from_raw_mode(found.st_mode).is_file(),
            size: found.st_size.cast_unsigned(),
            has_one_name: found.st_nlink < 2,
            dev: found.st_dev,
            ino: found.st_ino,
        })
    }

    /// The names of its entries.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = Dir::read_from(&self.0)?;
        Ok(entries.map(|entry| {
            let name = entry?.file_name().to_bytes().to_vec();
            Ok(std::ffi::OsString::from_vec(name).to_string_lossy().into_owned())
        }))
    }

    /// Whether there is an entry of this name, of any kind.
    pub(super) fn has(&self, name: &str) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The text of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// It is no regular file of UTF-8 text of at most [`MAX_ADDED_BYTES`], or cannot be read.
    pub(super) fn read(&self, name: &str, links: AddedLinks) -> io::Result<Option<String>> {
        let wrong = |what: &str| Err(io::Error::new(ErrorKind::InvalidData, what));
        let refused = match links {
            AddedLinks::Follow => OFlags::empty(),
            AddedLinks::Refuse => OFlags::NOFOLLOW,
        };
        let opened = match openat(&self.0, name, OFlags::RDONLY | FLAGS | refused, Mode::empty()) {
            Ok(opened) => File::from(opened),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) if links == AddedLinks::Refuse => return Err(link_error()),
            // A socket.
            Err(Errno::NXIO) => return wrong("not a regular file"),
            Err(error) => return Err(error.into()),
        };
        if !opened.metadata()?.is_file() {
            return wrong("not a regular file");
        }
        let mut bytes = Vec::new();
        opened.take(MAX_ADDED_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_ADDED_BYTES {
            return wrong(&too_long());
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => wrong("not UTF-8 text"),
        }
    }

    /// Writes a new file durably; `owner` changes whose it is.
    ///
    /// # Errors
    /// There is an entry of this name, or it cannot be written.
    pub(super) fn write_new(
        &self,
        name: &str,
        text: &str,
        owner: impl FnOnce(&File),
    ) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | FLAGS;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let mut file = File::from(openat(&self.0, name, flags, mode)?);
        file.write_all(text.as_bytes())?;
        owner(&file);
        file.sync_all()
    }

    /// Gives an entry another name; replaces an entry of that name.
    ///
    /// # Errors
    /// It does not exist, or the directory cannot be written.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Fails if an entry is a directory.
    ///
    /// # Errors
    /// It is one, or cannot be looked at.
    pub(super) fn refuse_dir(&self, name: &str) -> io::Result<()> {
        let found = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
            true => Err(ErrorKind::IsADirectory.into()),
            false => Ok(()),
        }
    }

    /// Removes an entry, if it is there.
    ///
    /// # Errors
    /// It is a directory, or the directory cannot be written.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes changes of its entries durable.
    ///
    /// # Errors
    /// They cannot be synced.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Gives it to the owner of a file.
    pub(super) fn give_to(&self, owner: &Metadata) {
        // Only root can; any other user owns it already.
        let _ = std::os::unix::fs::fchown(&self.0, Some(owner.uid()), Some(owner.gid()));
    }
}

/// What a file of the directory cannot be.
pub(super) fn too_long() -> String {
    format!("a file of exports.d has at most {} KiB", MAX_ADDED_BYTES >> 10)
}

fn link_error() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a symbolic link, which is not followed")
}
