//! The lock file that allows one server per session.
//!
//! SQLite's own locks let several programs share the file. A second *server* would have its own
//! caches and return stale data. So a server holds `SESSION.db-lock` by flock, and writes its
//! process id into the file for the error message of a second server.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::connect::companion_path;
use super::error::OpenError;

/// Suffix of the lock file's name.
pub(super) const SUFFIX: &str = "-lock";

/// Retries after the previous holder removed the lock file between open and flock.
const ATTEMPTS: u32 = 8;

/// Retries if the lock is held, because [`SessionLock::holder`] holds it for a moment.
const PROBE_RETRIES: u32 = 2;

/// Pause between those retries: longer than `holder` keeps the lock.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// The lock on a session; dropping it releases the lock and removes the file.
pub struct SessionLock {
    path: PathBuf,
    file: File,
    exclusive: bool,
}

impl SessionLock {
    /// Takes the lock: `exclusive` to write, otherwise shared with other read-only servers.
    pub fn take(session: &Path, exclusive: bool) -> Result<Self, OpenError> {
        let path = companion_path(session, SUFFIX);
        for attempt in 0..ATTEMPTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            // O_NOFOLLOW, as SQLite uses for its files: a symbolic link here must not redirect our
            // write.
            options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let mut file = options.open(&path).map_err(|e| OpenError::io(&path, e))?;
            check_owner(&file, session).map_err(|e| OpenError::io(&path, e))?;
            let taken = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match taken {
                Ok(()) => {}
                // The holder may be a short probe: see `holder`.
                Err(TryLockError::WouldBlock) if attempt < PROBE_RETRIES => {
                    std::thread::sleep(PROBE_PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = read_pid(&mut file);
                    return Err(OpenError::InUse { path: session.to_owned(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(OpenError::io(&path, error)),
            }
            // The previous holder may have removed the file between our open and our lock.
            if same_file(&file, &path) {
                if exclusive {
                    write_pid(&mut file).map_err(|e| OpenError::io(&path, e))?;
                }
                return Ok(Self { path, file, exclusive });
            }
        }
        Err(OpenError::InUse { path: session.to_owned(), holder: None })
    }
}

impl SessionLock {
    /// The exclusive holder: `Some` with the process id, if that is known; `None` if there is no
    /// exclusive holder. The probe holds a shared lock for a moment.
    pub fn holder(session: &Path) -> Option<Option<u32>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(companion_path(session, SUFFIX)).ok()?;
        match file.try_lock_shared() {
            Ok(()) => None,
            Err(_) => Some(read_pid(&mut file)),
        }
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Still locked here. A shared lock may have other holders; without any, it can be upgraded
        // to exclusive.
        if self.exclusive || self.file.try_lock().is_ok() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Checks that a server created the open lock file. In a directory that other users can write, it
/// may be another user's file, or a hard link to a file that must not be overwritten.
fn check_owner(file: &File, session: &Path) -> io::Result<()> {
    let found = file.metadata()?;
    let owner = std::fs::metadata(session).ok().map(|session| session.uid());
    let ours = rustix::process::geteuid().as_raw();
    let is_owned = [Some(0), Some(ours), owner].contains(&Some(found.uid()));
    // nlink 0: its previous holder removed it; `same_file` detects that later.
    if is_owned && found.is_file() && found.nlink() <= 1 {
        return Ok(());
    }
    let what = format!("not a lock file of the session's owner, but user {}'s", found.uid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn same_file(file: &File, path: &Path) -> bool {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
