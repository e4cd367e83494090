//! A new session file that is made from another one: a copy or a fork.
//!
//! It is written under a temporary name, synced, and then renamed: there is a whole file or none.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use crate::delta::{StoreError, StoreErrorKind};

use crate::delta::sqlite::file::connect::companion_path;
use crate::delta::sqlite::file::create::absolute;
use crate::delta::sqlite::file::disk::{self, byte_len};
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::probe;
use crate::delta::sqlite::file::session::Session;

/// Suffix of an unfinished file's name; unlikely to be the name of a session.
const SUFFIX: &str = "-snapshot-unfinished";

/// Free space required beyond the content, in bytes: for the WAL of the last step.
const MARGIN_BYTES: u64 = 1 << 20;

/// A copy of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCopy {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its own session id; `None` if acetate never served the original.
    pub id: Option<String>,
}

type Result<T> = std::result::Result<T, OpenError>;

/// A session file that is being made from another one; dropping it removes the unfinished file.
pub(super) struct NewFile {
    original: PathBuf,
    to: PathBuf,
    unfinished: Unfinished,
    /// Keeps other processes from creating a session or a copy under this name.
    _lock: SessionLock,
}

impl NewFile {
    /// Begins to make the file `to` from the session file `original`.
    ///
    /// # Errors
    /// `to` exists, or `original` is not a session.
    pub fn create(original: &Path, to: &Path) -> Result<Self> {
        let original = Session::existing(original)?;
        let to = absolute(to)?;
        // Check first: beside an existing file nothing is created or removed.
        require_absent(&to)?;
        match probe::check(&original) {
            // An old version can be copied without understanding its rows.
            Ok(()) | Err(OpenError::OldSpec { .. }) => {}
            Err(error) => return Err(error),
        }
        let lock = SessionLock::take(&to, true)?;
        require_absent(&to)?;
        let unfinished = companion_path(&to, SUFFIX);
        if unfinished == original {
            return Err(OpenError::Exists { path: original });
        }
        let unfinished = Unfinished(unfinished);
        // Left by a killed copy; the lock shows that none is running.
        unfinished.remove().map_err(|error| OpenError::io(&unfinished.0, error))?;
        unfinished.create().map_err(|error| OpenError::io(&unfinished.0, error))?;
        Ok(Self { original, to, unfinished, _lock: lock })
    }

    /// The session that it is made from.
    pub fn original(&self) -> &Path {
        &self.original
    }

    /// The file to fill, empty at first.
    pub fn unfinished(&self) -> &Path {
        &self.unfinished.0
    }

    /// Gives the file its name, durably; `id` is its session id.
    ///
    /// # Errors
    /// The file cannot be synced or renamed: it is removed.
    pub fn finish(self, id: Option<String>) -> Result<SessionCopy> {
        let bytes = byte_len(self.unfinished());
        let finished = self.unfinished.finish(&self.original, &self.to);
        finished.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => OpenError::Exists { path: self.to.clone() },
            _ => OpenError::io(&self.to, error),
        })?;
        Ok(SessionCopy { path: self.to.clone(), bytes, id })
    }

    /// Refuses to start without free space for `bytes` of content.
    pub fn require_room(&self, bytes: u64) -> Result<()> {
        require_room(&self.to, bytes.saturating_add(MARGIN_BYTES))
    }

    /// The error for a failure of the store.
    pub fn failed(&self, source: StoreError) -> OpenError {
        OpenError::Copy { path: self.original.clone(), to: self.to.clone(), source }
    }

    /// The same; `bytes` of content were to be copied.
    pub fn failed_with(&self, source: StoreError, bytes: u64) -> OpenError {
        match source.kind {
            // Another program used the free space.
            StoreErrorKind::Full => no_room(&self.to, bytes.saturating_add(MARGIN_BYTES)),
            _ => self.failed(source),
        }
    }
}

/// Refuses a name that exists, or that has a WAL or journal beside it. SQLite would take that file
/// for the copy's, and the session that it belongs to may need it.
pub(super) fn require_absent(to: &Path) -> Result<()> {
    if to.symlink_metadata().is_ok() {
        return Err(OpenError::Exists { path: to.to_owned() });
    }
    let logs = ["-wal", "-journal"].map(|suffix| companion_path(to, suffix));
    match logs.into_iter().find(|log| byte_len(log) > 0) {
        Some(log) => Err(OpenError::LeftoverWal { wal: log }),
        None => Ok(()),
    }
}

/// The unfinished copy; dropping it removes the file.
struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates an empty file that only its owner may read.
    fn create(&self) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&self.0).map(drop)
    }

    fn remove(&self) -> std::io::Result<()> {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            match std::fs::remove_file(companion_path(&self.0, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Renames the copy of `original` to `to`, durably.
    fn finish(&self, original: &Path, to: &Path) -> std::io::Result<()> {
        self.permit(original)?;
        File::open(&self.0)?.sync_all()?;
        disk::rename_new(&self.0, to)?;
        File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Gives the copy the original's owner, if the system permits that. The mode stays 0600,
    /// because the copy holds the content of files that other users may not read.
    fn permit(&self, original: &Path) -> std::io::Result<()> {
        let wanted = original.metadata()?;
        // Only root may change a file's owner.
        let _given = chown(&self.0, Some(wanted.uid()), Some(wanted.gid()));
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Refuses to start without enough free space.
fn require_room(to: &Path, needed: u64) -> Result<()> {
    match disk::usage(folder(to)) {
        Ok(disk) if disk.total_bytes > 0 && disk.available_bytes < needed => {
            Err(no_room(to, needed))
        }
        _ => Ok(()),
    }
}

fn no_room(to: &Path, needed: u64) -> OpenError {
    let available = disk::usage(folder(to)).map_or(0, |disk| disk.available_bytes);
    OpenError::NoRoomForCopy { path: to.to_owned(), needed, available }
}

fn folder(to: &Path) -> &Path {
    to.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_and_the_error_says_how_much_it_takes() {
        let to = std::env::temp_dir().join("copy.db");
        assert!(require_room(&to, 0).is_ok());
        let refused = require_room(&to, 1 << 60).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("the copy needs 1099511627776 MiB"), "{said}");
    }
}
