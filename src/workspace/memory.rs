//! Sessions that are gone with the process: files in memory, where the system has a place for
//! them, and otherwise among its temporary files.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::delta::sqlite::session_files;

/// A filesystem in memory that every Linux has.
const IN_MEMORY: &str = "/dev/shm";

/// Begins the names of our directories; the user's number and the process's follow.
const PREFIX: &str = "acetate";

/// Held as long as the directory is in use.
const LOCK: &str = "lock";

/// A directory for sessions that goes with this value, and at the next start where the process
/// was killed.
#[derive(Debug)]
pub struct MemoryDir {
    path: PathBuf,
    _lock: File,
}

impl MemoryDir {
    /// Makes one, and removes what killed processes of this user left.
    ///
    /// # Errors
    /// There is no place for it.
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
            // Made by us, or not at all: nobody can have put a link there.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 1000 => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        // It has its name once it is locked, so that nobody takes the directory for left over.
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

    /// Removes a session that is open no more, if it is in here: an export may come that has the
    /// same name, and begins anew.
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

/// Removes what processes left that are no more.
fn sweep(place: &Path, prefix: &str, uid: u32) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        let path = entry.path();
        let is_ours = path.symlink_metadata().is_ok_and(|at| at.is_dir() && at.uid() == uid);
        if is_named && is_ours && is_left_over(&path) {
            // What cannot be removed now can be at the next start.
            let _left = fs::remove_dir_all(&path);
        }
    }
}

fn is_left_over(dir: &Path) -> bool {
    File::open(dir.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}
