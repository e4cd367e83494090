//! Writes the files of `exports.d`, one process at a time.
//!
//! A file is replaced by a rename, so that a reader sees the old text or the new one. A removed
//! file keeps its text under another name until the sessions of its export are removed too.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::added::{added_dir, added_file};
use super::added_dir::{AddedDir, AddedLinks};
use super::added_lock;

/// Permission to change the files of `exports.d`.
#[derive(Debug)]
pub struct AddedFiles {
    file: PathBuf,
    /// Locked until this is dropped.
    _lock: File,
}

impl AddedFiles {
    /// Waits until no other process changes the files of the `exports.d` beside the exports file
    /// `file`. The directory is made if it does not exist.
    ///
    /// # Errors
    /// The directory or the [lock file](lock_file) cannot be made or opened, or users may lock it
    /// who may not change exports; `TimedOut` if another process has the lock for 30 seconds.
    pub fn lock(file: &Path) -> io::Result<Self> {
        Self::lock_dir(file, &make(file)?)
    }

    /// The same; `None` if there is no such directory.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_existing(file: &Path) -> io::Result<Option<Self>> {
        let dir = AddedDir::open(&added_dir(file))?;
        dir.map(|dir| Self::lock_dir(file, &dir)).transpose()
    }

    fn lock_dir(file: &Path, dir: &AddedDir) -> io::Result<Self> {
        // Not the exports file itself: a server locks that while it makes tokens, and other users
        // may open it.
        let lock = added_lock::lock(dir, &added_dir(file))?;
        Ok(Self { file: file.to_owned(), _lock: lock })
    }

    /// Whether there is a file of an export, of any kind.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        Ok(self.open()?.is_some_and(|dir| dir.has(&self.name_of(name))))
    }

    /// The text of an export's file; `None` if it does not exist.
    ///
    /// # Errors
    /// It is not a regular file of the size that a server reads, or cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        self.text_of(&self.name_of(name))
    }

    /// The text of a file that was removed, until it is forgotten.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_removed(&self, name: &str) -> io::Result<Option<String>> {
        self.text_of(&removed(name))
    }

    /// Writes an export's file durably: it has this text or, after an error, the earlier one.
    ///
    /// # Errors
    /// The file or its directory cannot be written.
    pub fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let dir = make(&self.file)?;
        let new = format!(".{name}.new");
        dir.remove(&new)?;
        let written = dir.write_new(&new, text, |file| self.give(file)).and_then(|()| {
            dir.rename(&new, &self.name_of(name))?;
            dir.sync()
        });
        written.inspect_err(|_| drop(dir.remove(&new)))
    }

    /// Removes an export's file durably, of whatever kind it is; it can be [taken
    /// back](Self::restore) until it is [forgotten](Self::forget).
    ///
    /// # Errors
    /// The file does not exist or is a directory, or its directory cannot be written.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let dir = self.existing()?;
        dir.refuse_dir(&self.name_of(name))?;
        dir.rename(&self.name_of(name), &removed(name))?;
        dir.sync()
    }

    /// Takes a removal back.
    ///
    /// # Errors
    /// The file was not removed, or its directory cannot be written.
    pub fn restore(&self, name: &str) -> io::Result<()> {
        let dir = self.existing()?;
        dir.rename(&removed(name), &self.name_of(name))?;
        dir.sync()
    }

    /// Forgets the text of a removed file, if it is there.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        let Some(dir) = self.open()? else { return Ok(()) };
        dir.remove(&removed(name))?;
        dir.sync()
    }

    fn open(&self) -> io::Result<Option<AddedDir>> {
        AddedDir::open(&added_dir(&self.file))
    }

    fn existing(&self) -> io::Result<AddedDir> {
        self.open()?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn text_of(&self, name: &str) -> io::Result<Option<String>> {
        self.open()?.map_or(Ok(None), |dir| dir.read(name, AddedLinks::Refuse))
    }

    /// The name of an export's file in the directory.
    fn name_of(&self, name: &str) -> String {
        let path = added_file(&self.file, name);
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Gives the owner of the exports file what root made: the server may run as that user.
    fn give(&self, made: &File) {
        if let Ok(owner) = fs::metadata(&self.file) {
            // Only root can; any other user owns it already.
            let _ = std::os::unix::fs::fchown(made, Some(owner.uid()), Some(owner.gid()));
        }
    }
}

/// The directory `exports.d` of the exports file `file`, which is made if it does not exist.
fn make(file: &Path) -> io::Result<AddedDir> {
    let path = added_dir(file);
    if let Some(dir) = AddedDir::open(&path)? {
        return Ok(dir);
    }
    match DirBuilder::new().mode(0o755).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let dir = AddedDir::open(&path)?.ok_or(ErrorKind::NotFound)?;
    if let Ok(owner) = fs::metadata(file) {
        dir.give_to(&owner);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(dir)
}

/// The file that is locked during a change of the exports of `file`: in `exports.d`, for all
/// exports files of the directory. It is never deleted: another process may wait for its lock.
pub fn lock_file(file: &Path) -> PathBuf {
    added_dir(file).join(added_lock::LOCK_NAME)
}

/// The name of a removed file, which no server reads.
fn removed(name: &str) -> String {
    format!(".{name}.removed")
}
