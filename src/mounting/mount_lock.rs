//! The lock that serializes mounts and unmounts of a session: one command must not stop the server
//! that another is about to mount.
//!
//! One file per session, beside the notes, locked by flock. The holder writes its pid to it for
//! messages. No process holds two of these locks, so there is no deadlock.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::error::MountError;
use super::event::{MountEvent, Observer};
use super::{note, server};

/// The suffix of the lock files.
const SUFFIX: &str = ".turn";

/// The time between two attempts.
const TRY_INTERVAL: Duration = Duration::from_millis(20);

/// The interval of messages about waiting.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// The lock on a session; released on drop.
#[derive(Debug)]
pub(crate) struct MountLock {
    path: PathBuf,
    /// The locked file; closed on exec.
    _file: File,
}

impl MountLock {
    /// Waits for the lock on `session`; reports its holder every second.
    ///
    /// # Errors
    /// The lock file cannot be created or locked.
    pub(crate) fn take(session: &Path, tell: Observer<'_>) -> Result<Self, MountError> {
        let failed = |error: io::Error| {
            let what = format!("cannot keep others from mounting {}", session.display());
            MountError::caused(what, &error)
        };
        let path = note::file(session, SUFFIX).map_err(failed)?;
        let mut told = Instant::now();
        loop {
            let mut file = open(&path).map_err(failed)?;
            match file.try_lock() {
                // The last holder may have deleted the file between the open and the lock.
                Ok(()) if is_at(&file, &path) => {
                    write_pid(&mut file).map_err(failed)?;
                    return Ok(Self { path, _file: file });
                }
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            if told.elapsed() >= TELL_INTERVAL {
                told = Instant::now();
                let (holder, left) = (holder(file), server::left(session));
                tell(MountEvent::WaitsForLock { holder, session: session.to_owned(), left });
            }
            thread::sleep(TRY_INTERVAL);
        }
    }
}

impl Drop for MountLock {
    fn drop(&mut self) {
        // Deleted before the lock is released.
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: Metadata| (found.dev(), found.ino());
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

/// The pid in a lock file.
fn holder(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
