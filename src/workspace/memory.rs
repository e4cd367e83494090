//! Sessions in memory: files in /dev/shm, or among the temporary files if that does not exist. They
//! are removed when the process ends.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::delta::Limits;
use crate::delta::sqlite::session_files;

/// Limit on the files of a session in memory, if its export has no byte quota, in bytes.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;

/// Addition to that limit with a byte quota, besides the quota and a quarter of it, in bytes: for
/// names, whiteouts and the WAL.
const MEMORY_OVERHEAD_BYTES: u64 = 128 << 20;

/// Limit on the files of a session in memory, in bytes, under its export's limits.
pub(super) fn memory_bytes(limits: Limits) -> u64 {
    let with_pages = |bytes: u64| bytes.saturating_add(bytes / 4);
    limits
        .bytes
        .map_or(MAX_MEMORY_BYTES, |bytes| with_pages(bytes).saturating_add(MEMORY_OVERHEAD_BYTES))
}

/// The tmpfs of every Linux system.
const IN_MEMORY: &str = "/dev/shm";

/// Prefix of the directories' names, followed by uid and pid.
const PREFIX: &str = "acetate";

/// File that is locked while the directory is in use.
const LOCK: &str = "lock";

/// A directory for sessions, removed on drop. After a crash, the next start removes it.
#[derive(Debug)]
pub struct MemoryDir {
    path: PathBuf,
    _lock: File,
}

impl MemoryDir {
    /// Creates a directory, and removes those that crashed processes of this user left.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn make() -> io::Result<Self> {
        let place = Path::new(IN_MEMORY);
        let place = if place.is_dir() { place.to_owned() } else { std::env::temp_dir() };
        let uid = super::this_user().uid;
        let ours = format!("{PREFIX}-{uid}-");
        sweep(&place, &ours, uid);
        let pid = std::process::id();
        let mut attempt = 0_u32;
        let path = loop {
            let path = place.join(format!("{ours}{pid}-{attempt}"));
            // mkdir(2) fails on an existing symbolic link, so another user cannot redirect the
            // path.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 1000 => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        // Renamed after it is locked, so that no other process sees an unlocked lock file.
        let new = path.join("lock.new");
        let lock = File::create(&new)?;
        lock.lock()?;
        fs::rename(&new, path.join(LOCK))?;
        Ok(Self { path, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a closed session, if it is in this directory: a later export of this name starts
    /// empty.
    pub fn forget(&self, session: &Path) {
        if session.parent() != Some(&self.path) {
            return;
        }
        for file in session_files(session) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!(file = %file.display(), %error, "cannot remove a file");
                }
                _ => {}
            }
        }
    }
}

impl Drop for MemoryDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(dir = %self.path.display(), %error, "cannot remove a directory");
        }
    }
}

/// Removes directories of processes that have ended.
fn sweep(place: &Path, prefix: &str, uid: u32) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        let path = entry.path();
        let is_ours = path.symlink_metadata().is_ok_and(|at| at.is_dir() && at.uid() == uid);
        if is_named && is_ours && is_left_over(&path) {
            // If removal fails, the next start tries again.
            let _left = fs::remove_dir_all(&path);
        }
    }
}

fn is_left_over(dir: &Path) -> bool {
    File::open(dir.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}
