//! Removes a session with all that lies beside it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::probe;
use crate::delta::sqlite::file::session::session_files;

/// Whether a server or a command has a session open to change it.
pub fn is_in_use(session: &Path) -> bool {
    SessionLock::holder(session).is_some()
}

/// Whether a regular file is a session that this version can open. Not of one that this process
/// has open: closing the file would release SQLite's locks.
pub fn is_session(file: &Path) -> bool {
    file.symlink_metadata().is_ok_and(|found| found.is_file()) && probe::check(file).is_ok()
}

/// Removes a closed session, the files beside it and its undo directory. Missing files are no
/// error.
///
/// A process that dies here leaves nothing that the next creation of the session refuses: the WAL
/// is removed before the session file.
///
/// # Errors
/// The session is in use, or a file cannot be removed.
pub fn remove_session(session: &Path) -> Result<(), OpenError> {
    let _lock = SessionLock::take(session, true)?;
    let mut files = session_files(session);
    let lock_file = files.iter().position(|file| file.to_string_lossy().ends_with("-lock"));
    // The lock removes its own file.
    lock_file.map(|index| files.swap_remove(index));
    files.sort_by_key(|file| file == session);
    for file in files {
        remove_file_or_dir(&file).map_err(|error| OpenError::io(&file, error))?;
    }
    let parent = session.parent().unwrap_or(Path::new("/"));
    let synced = fs::File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|error| OpenError::io(parent, error))
}

/// Removes a file, or a directory with all that is in it. A missing one is no error.
///
/// # Errors
/// It cannot be removed, or not completely.
pub(super) fn remove_file_or_dir(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
