//! Registry of the sessions that this user's servers have on this machine.
//!
//! Each session has a file in a directory of the user. A killed server leaves its file behind: the
//! next server of the session reuses it, or a reader detects and removes it. The directory is
//! opened once per operation and files are opened relative to it, so that another user cannot
//! redirect the operation.

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

/// Entries that are listed.
const MAX_ENTRIES: usize = 4096;

/// Upper bound of a registry file, in bytes: it contains one path.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The registry file of this server; removed on drop.
#[derive(Debug)]
pub struct Registered(OsString);

/// A registered server, which may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryEntry {
    /// The session file.
    pub session: PathBuf,
    file: OsString,
}

impl Registered {
    /// Registers this process as the server of a session, which it must have locked.
    ///
    /// # Errors
    /// The file cannot be written.
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
    /// Removes the registry file of a server that has ended.
    pub fn forget(&self) {
        remove(&self.file);
    }
}

/// The servers that this user registered.
///
/// # Errors
/// The directory cannot be read, or belongs to another user.
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

/// Flags of every open: no symbolic links, no blocking.
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

/// The directory, created if missing. It must belong to this user and be writable by no other.
fn directory() -> io::Result<OwnedFd> {
    let user = rustix::process::geteuid().as_raw();
    // After `sudo -E`, XDG_RUNTIME_DIR belongs to another user, who could rename its entries.
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
