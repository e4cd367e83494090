//! Which sessions this user's servers have, on this machine.
//!
//! A file for each session in a directory that is the user's own. A server that was killed leaves
//! its file behind; the session's next one takes it over, or whoever reads the directory finds out
//! and removes it. The directory is opened once for each look, and files are named in it: what
//! another user puts in its place is not read, written or removed.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat};
use siphasher::sip::SipHasher24;

/// Servers that are listed at most.
const MAX_ENTRIES: usize = 4096;

/// A longer file is none of ours: it has a path.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// A server's own file; it goes with this.
#[derive(Debug)]
pub struct Registered(OsString);

/// A server that was registered, and may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryEntry {
    /// The session file.
    pub session: PathBuf,
    file: OsString,
}

impl Registered {
    /// Says that this process serves the session, which it has to itself.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn enter(session: &Path) -> io::Result<Self> {
        let mut hasher = SipHasher24::new();
        hasher.write(session.as_os_str().as_bytes());
        let name = OsString::from(format!("{:016x}", hasher.finish()));
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | HOW;
        let file = openat(directory()?, &name, how, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(session.as_os_str().as_bytes())?;
        Ok(Self(name))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

impl RegistryEntry {
    /// Removes the file of a server that is gone.
    pub fn forget(&self) {
        remove(&self.file);
    }
}

/// The servers that were registered by this user.
///
/// # Errors
/// The directory cannot be read, or is another user's.
pub fn entries() -> io::Result<Vec<RegistryEntry>> {
    let directory = directory()?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)?.take(MAX_ENTRIES) {
        let file = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        let Ok(session) = read(&directory, &file) else { continue };
        found.push(RegistryEntry { session: PathBuf::from(OsStr::from_bytes(&session)), file });
    }
    found.sort_by(|a, b| a.session.cmp(&b.session));
    Ok(found)
}

/// How files are opened: no link is followed, and nothing waits.
const HOW: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

fn read(directory: &OwnedFd, name: &OsStr) -> io::Result<Vec<u8>> {
    let file = openat(directory, name, OFlags::RDONLY | HOW, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut session = Vec::new();
    File::from(file).take(MAX_FILE_BYTES).read_to_end(&mut session)?;
    Ok(session)
}

fn remove(name: &OsStr) {
    if let Ok(directory) = directory() {
        let _gone = unlinkat(directory, name, AtFlags::empty());
    }
}

/// The directory, made if need be. It must be this user's, and writable for no other.
fn directory() -> io::Result<OwnedFd> {
    let user = rustix::process::geteuid().as_raw();
    // After `sudo` with its environment kept, it is another user's, who may rename what is in it.
    let is_ours = |run: &Path| run.metadata().is_ok_and(|run| run.is_dir() && run.uid() == user);
    let dir = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(run) if is_ours(&run) => run.join("acetate"),
        _ => std::env::temp_dir().join(format!("acetate-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let how = OFlags::RDONLY | OFlags::DIRECTORY | HOW;
    let open = openat(CWD, &dir, how, Mode::empty())?;
    let found = fstat(&open)?;
    if found.st_uid != user || Mode::from_raw_mode(found.st_mode).intersects(OTHERS_WRITE) {
        let what = format!("{}: not a directory of this user's alone", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(open)
}

const OTHERS_WRITE: Mode = Mode::WGRP.union(Mode::WOTH);
