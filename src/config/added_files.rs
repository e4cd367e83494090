//! Writes the files of `exports.d`, one process at a time.
//!
//! A file is replaced by a rename, so that a reader sees the old text or the new one. A removed
//! file keeps its text under another name until the sessions of its export are removed too.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::added::{added_dir, added_file};

/// Time to wait for another process that changes the exports.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Permission to change the files of `exports.d`.
#[derive(Debug)]
pub struct AddedFiles {
    file: PathBuf,
    /// The directory of the exports file, locked until this is dropped.
    _lock: File,
}

impl AddedFiles {
    /// Waits until no other process changes the files beside the exports file `file`.
    ///
    /// # Errors
    /// The directory cannot be opened; `TimedOut` if another process has the lock for 30 seconds.
    pub fn lock(file: &Path) -> io::Result<Self> {
        // Not the exports file itself: a server locks that while it makes tokens.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let lock = File::open(folder.unwrap_or(Path::new(".")))?;
        let begin = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { file: file.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// The text of an export's file; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        text_of(&added_file(&self.file, name))
    }

    /// The text of a file that was removed, until it is forgotten.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_removed(&self, name: &str) -> io::Result<Option<String>> {
        text_of(&self.removed(name))
    }

    /// Writes an export's file durably: it has this text or, after an error, the earlier one.
    ///
    /// # Errors
    /// The file or its directory cannot be written.
    pub fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let dir = added_dir(&self.file);
        match DirBuilder::new().mode(0o755).create(&dir) {
            Ok(()) => {
                self.give(&File::open(&dir)?);
                sync_dir(dir.parent())?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let new = dir.join(format!(".{name}.new"));
        remove_if_there(&new)?;
        let written = self.write(&new, text).and_then(|()| {
            fs::rename(&new, added_file(&self.file, name))?;
            sync_dir(Some(&dir))
        });
        written.inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Removes an export's file durably; its text stays for [`Self::read_removed`].
    ///
    /// # Errors
    /// The file does not exist, or its directory cannot be written.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::rename(added_file(&self.file, name), self.removed(name))?;
        sync_dir(Some(&added_dir(&self.file)))
    }

    /// Forgets the text of a removed file, if it is there.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        remove_if_there(&self.removed(name))?;
        sync_dir(Some(&added_dir(&self.file)))
    }

    /// The name of a removed file, which no server reads.
    fn removed(&self, name: &str) -> PathBuf {
        added_dir(&self.file).join(format!(".{name}.removed"))
    }

    fn write(&self, new: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(new)?;
        file.write_all(text.as_bytes())?;
        self.give(&file);
        file.sync_all()
    }

    /// Gives the owner of the exports file what root made: the server may run as that user.
    fn give(&self, made: &File) {
        if let Ok(owner) = fs::metadata(&self.file) {
            // Only root can; anyone else owns it already.
            let _ = std::os::unix::fs::fchown(made, Some(owner.uid()), Some(owner.gid()));
        }
    }
}

fn text_of(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync_dir(dir: Option<&Path>) -> io::Result<()> {
    let dir = dir.filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
