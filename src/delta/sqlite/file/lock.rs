//! The lock that keeps a second server away.
//!
//! SQLite's own locks let many programs share the file, which is what its readers want; a second
//! *server* would keep caches of its own and answer wrongly. So a server holds `SESSION.db-lock`
//! by flock, and writes its process id into it for whoever is refused.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::connect::beside;
use super::error::OpenError;

/// Ends the lock file's name.
pub(super) const SUFFIX: &str = "-lock";

/// Times that the lock file may vanish under our hands before we give up.
const ATTEMPTS: u32 = 8;

/// Times that the lock may be taken by somebody who only looks.
const GLANCES: u32 = 2;

/// Longer than such a look.
const GLANCE: Duration = Duration::from_millis(10);

/// The lock on a session; dropping it lets go and removes the file.
pub struct SessionLock {
    path: PathBuf,
    file: File,
    exclusive: bool,
}

impl SessionLock {
    /// Takes the lock: `exclusive` to write, else shared with other read-only servers.
    pub fn take(session: &Path, exclusive: bool) -> Result<Self, OpenError> {
        let path = beside(session, SUFFIX);
        for attempt in 0..ATTEMPTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            // As SQLite opens its own files: a link put here must not name what is overwritten.
            options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let mut file = options.open(&path).map_err(|e| OpenError::io(&path, e))?;
            check_owner(&file, session).map_err(|e| OpenError::io(&path, e))?;
            let taken = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match taken {
                Ok(()) => {}
                // Somebody may only be looking whether it is taken: see `holder`.
                Err(TryLockError::WouldBlock) if attempt < GLANCES => {
                    std::thread::sleep(GLANCE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = read_pid(&mut file);
                    return Err(OpenError::InUse { path: session.to_owned(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(OpenError::io(&path, error)),
            }
            // Its last holder may have removed it between our open and our lock.
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
    /// Who has the session exclusively: its process id, where that is known; `None` if nobody
    /// has it. The lock is not taken from anybody who asks at the same time but for a moment.
    pub fn holder(session: &Path) -> Option<Option<u32>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(beside(session, SUFFIX)).ok()?;
        match file.try_lock_shared() {
            Ok(()) => None,
            Err(_) => Some(read_pid(&mut file)),
        }
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Still locked here. A shared lock may have other holders; if not, it can be exclusive.
        if self.exclusive || self.file.try_lock().is_ok() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Checks that an open lock file is one that a server made: in a directory that others may write,
/// it can be another user's, or a further name of a file that is not to be overwritten.
fn check_owner(file: &File, session: &Path) -> io::Result<()> {
    let found = file.metadata()?;
    let owner = std::fs::metadata(session).ok().map(|session| session.uid());
    let ours = rustix::process::geteuid().as_raw();
    let is_owned = [Some(0), Some(ours), owner].contains(&Some(found.uid()));
    // One that its last holder has removed has no name; that is noticed later.
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
