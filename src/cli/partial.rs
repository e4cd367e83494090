//! A new file that has its name only once it is whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::CliError;

/// A file under a name of its own until it is whole; it goes with this if it never is.
pub(super) struct Partial {
    /// The file.
    pub file: File,
    /// Its name until then.
    pub path: PathBuf,
}

impl Partial {
    /// Creates it beside `file`.
    pub fn create(file: &Path) -> Result<Self, CliError> {
        let mut path = file.as_os_str().to_owned();
        path.push(format!(".partial-{}", std::process::id()));
        let path = PathBuf::from(path);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|error| CliError::caused(path.display(), &error))?;
        Ok(Self { file, path })
    }

    /// A failure of it.
    pub fn error(&self, error: &io::Error) -> CliError {
        CliError::caused(self.path.display(), error)
    }

    /// Has its content on the disk, and gives it its name.
    pub fn keep_as(&self, file: &Path) -> Result<(), CliError> {
        self.file.sync_all().map_err(|error| self.error(&error))?;
        fs::rename(&self.path, file).map_err(|error| self.error(&error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is not there any more where it was kept.
        let _ = fs::remove_file(&self.path);
    }
}
