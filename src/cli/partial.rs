//! A new file that gets its name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::CliError;

/// A file under a temporary name; removed on drop unless it was completed.
pub(super) struct Partial {
    /// The open file.
    pub file: File,
    /// The temporary path.
    pub path: PathBuf,
}

impl Partial {
    /// Creates the file beside `file`.
    pub fn create(file: &Path) -> Result<Self, CliError> {
        let mut path = file.as_os_str().to_owned();
        path.push(format!(".partial-{}", std::process::id()));
        let path = PathBuf::from(path);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|error| CliError::caused(path.display(), &error))?;
        Ok(Self { file, path })
    }

    /// An I/O error of the file.
    pub fn error(&self, error: &io::Error) -> CliError {
        CliError::caused(self.path.display(), error)
    }

    /// Syncs the file and renames it to `file`.
    pub fn keep_as(&self, file: &Path) -> Result<(), CliError> {
        self.file.sync_all().map_err(|error| self.error(&error))?;
        fs::rename(&self.path, file).map_err(|error| self.error(&error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Fails after [`Partial::keep_as`]: the temporary name is gone.
        let _ = fs::remove_file(&self.path);
    }
}
