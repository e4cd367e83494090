//! The lock file that allows one server per session.
//!
//! SQLite's own locks let several programs share the file. A second *server* would have its own
//! caches and return stale data. So a server holds `SESSION.db-lock` by flock, and writes its
//! process id into the file for the error message of a second server.
//!
//! With that lock it holds [`FileLocks`], because a process loses SQLite's locks on a file if it
//! closes any other descriptor of that file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::fcntl::{FcntlArg, fcntl};
#[cfg(target_os = "linux")]
use nix::libc;
use rustix::fs::OFlags;

use super::connect::companion_path;
use super::error::OpenError;

/// Suffix of the lock file's name.
pub const SUFFIX: &str = "-lock";

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
    files: OnceLock<FileLocks>,
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
                return Ok(Self { path, file, exclusive, files: OnceLock::new() });
            }
        }
        Err(OpenError::InUse { path: session.to_owned(), holder: None })
    }
}

impl SessionLock {
    /// Keeps other programs from removing the WAL, or resetting its index, until
    /// [`SessionLock::release_files`]. A file that does not exist yet is not locked.
    pub fn hold_files(&self, session: &Path) {
        self.files.get_or_init(|| FileLocks::take(session));
    }

    /// Lets SQLite remove the WAL when the last connection is closed.
    pub fn release_files(&self) {
        if let Some(files) = self.files.get() {
            files.release();
        }
    }

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

/// Locks of open file descriptions on the session and the index of its WAL, at the bytes that
/// SQLite locks. With them, another program that reads the session is never the last one.
#[derive(Default)]
struct FileLocks(Vec<File>);

impl FileLocks {
    /// Takes both locks. A filesystem without such locks, and another system than Linux, have
    /// SQLite's own alone.
    #[cfg(target_os = "linux")]
    fn take(session: &Path) -> Self {
        let shm = companion_path(session, "-shm");
        let places = [(session, SHARED_BYTES), (shm.as_path(), INDEX_IN_USE)];
        let lock = |(path, bytes): (&Path, Range<i64>)| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let file = options.open(path).ok()?;
            let mut locked = ofd_lock(&file, libc::F_RDLCK, bytes.clone());
            for _ in 0..PROBE_RETRIES {
                // Another program may hold it for a moment, to see whether it is the last one.
                if locked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                    std::thread::sleep(PROBE_PAUSE);
                    locked = ofd_lock(&file, libc::F_RDLCK, bytes.clone());
                }
            }
            if let Err(error) = locked {
                tracing::debug!(path = %path.display(), %error, "no lock of our own");
            }
            // In any case it stays open: see `release`.
            Some(file)
        };
        Self(places.into_iter().filter_map(lock).collect())
    }

    #[cfg(not(target_os = "linux"))]
    fn take(_session: &Path) -> Self {
        Self::default()
    }

    /// Unlocks the files. They stay open, because closing them would release SQLite's locks.
    fn release(&self) {
        #[cfg(target_os = "linux")]
        for file in &self.0 {
            // Fails for no file that was locked.
            let _ = ofd_lock(file, libc::F_UNLCK, 0..0);
        }
    }
}

/// The bytes of a database that SQLite locks while it is open (`SHARED_FIRST`, `SHARED_SIZE`).
#[cfg(target_os = "linux")]
const SHARED_BYTES: Range<i64> = 0x4000_0002..0x4000_0002 + 510;

/// The byte of a WAL's index that is locked while the index is in use (`UNIX_SHM_DMS`).
#[cfg(target_os = "linux")]
const INDEX_IN_USE: Range<i64> = 128..129;

/// Sets a lock of the open file description; an end of 0 is that of the file.
#[cfg(target_os = "linux")]
fn ofd_lock(file: &File, kind: libc::c_int, bytes: Range<i64>) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start,
        l_len: bytes.end - bytes.start,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock))?;
    Ok(())
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
