//! Which sessions this user's servers have, on this machine.
//!
//! A file for each session in a directory that is the user's own. A server that was killed leaves
//! its file behind; the session's next one takes it over, or whoever reads the directory finds out
//! and removes it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher24;

/// Servers that are listed at most.
const MAX_ENTRIES: usize = 4096;

/// A server's own file; it goes with this.
#[derive(Debug)]
pub struct Registered(PathBuf);

/// A server that was registered, and may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The session file.
    pub session: PathBuf,
    file: PathBuf,
}

impl Registered {
    /// Says that this process serves the session, which it has to itself.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn enter(session: &Path) -> io::Result<Self> {
        let mut hasher = SipHasher24::new();
        hasher.write(session.as_os_str().as_bytes());
        let file = directory()?.join(format!("{:016x}", hasher.finish()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&file)?.write_all(session.as_os_str().as_bytes())?;
        Ok(Self(file))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Entry {
    /// Removes the file of a server that is gone.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// The servers that were registered by this user.
///
/// # Errors
/// The directory cannot be read, or is another user's.
pub fn entries() -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory()?)?.take(MAX_ENTRIES) {
        let file = entry?.path();
        let Ok(session) = fs::read(&file) else { continue };
        found.push(Entry { session: PathBuf::from(OsStr::from_bytes(&session)), file });
    }
    found.sort_by(|a, b| a.session.cmp(&b.session));
    Ok(found)
}

/// The directory, made if need be. In a place that others can write to, it must be ours.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) if Path::new(&run).is_dir() => PathBuf::from(run).join("acetate"),
        _ => std::env::temp_dir().join(format!("acetate-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&dir)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let what = format!("{}: not a directory of this user's alone", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(dir)
}
