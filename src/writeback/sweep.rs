//! Removes the content of a directory of any depth.
//!
//! Nested directories are first moved to the top, so that neither the length of paths nor the
//! number of open descriptors grows with the depth.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, Mode};
use rustix::io::Errno;

use super::{DIRECTORY, SeenObject};

/// Prefix of the names that nested directories get at the top.
const MOVED: &str = "moved-";

/// Removes the content of `top`.
pub(super) fn sweep(top: &File) -> io::Result<()> {
    sweep_all_but(top, None)
}

/// Removes the content of `top`, except the file called `kept`.
pub(super) fn sweep_all_but(top: &File, kept: Option<&str>) -> io::Result<()> {
    let mut count = 0;
    // Directories that an interrupted run moved to the top keep their names.
    let mut dirs = Vec::new();
    for name in names(top)? {
        let is_kept = kept.is_some_and(|kept| kept.as_bytes() == name.to_bytes());
        if is_kept || remove_file(top, &name)? {
            continue;
        }
        let number = name.to_bytes().strip_prefix(MOVED.as_bytes()).unwrap_or_default();
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        count = count.max(number.unwrap_or(0));
        dirs.push(name);
    }
    while let Some(name) = dirs.pop() {
        let dir = open(top, &name)?;
        for below in names(&dir)? {
            if remove_file(&dir, &below)? {
                continue;
            }
            count += 1;
            let moved = CString::new(format!("{MOVED}{count}")).unwrap_or_default();
            lift(&dir, &below, top, &moved)?;
            dirs.push(moved);
        }
        rustix::fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Removes an entry; `false` if it is a directory.
fn remove_file(dir: &File, name: &CString) -> io::Result<bool> {
    let is_dir = SeenObject::at(dir.as_fd(), name.to_bytes())?.is_some_and(|seen| seen.is_dir());
    if is_dir {
        return Ok(false);
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Moves a directory to the top. That changes its `..` entry, which its mode may forbid; then the
/// mode is changed. A mount point is left as it is.
fn lift(dir: &File, name: &CString, top: &File, moved: &CString) -> io::Result<()> {
    match rustix::fs::renameat(dir, name, top, moved) {
        Err(Errno::ACCESS) => {
            unlock(dir, name);
            Ok(rustix::fs::renameat(dir, name, top, moved)?)
        }
        lifted => Ok(lifted?),
    }
}

/// Opens a directory at the top, so that its entries can be read and removed.
fn open(top: &File, name: &CString) -> io::Result<File> {
    unlock(top, name);
    Ok(rustix::fs::openat(top, name, DIRECTORY, Mode::empty())?.into())
}

/// Gives us full permissions on a directory of ours.
fn unlock(dir: &File, name: &CString) {
    // Other processes do not work in these directories.
    let _refused_later = rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty());
}

/// Whether a nested directory may have this name at the top.
pub(super) fn is_moved(name: &[u8]) -> bool {
    let number = name.strip_prefix(MOVED.as_bytes());
    number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
}

/// The names of a directory's entries.
pub(super) fn names(dir: &File) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
