//! What context nodes need of a tree of files: a small interface, so that the rules are the same
//! in a session that is served, in one that nobody serves, and in a test that fails at each step.
//!
//! Paths are absolute and normalized (`/a/b`). No symbolic link is followed.

/// Reads a tree.
pub trait Reads {
    /// The content of a regular file; `None` where nothing is.
    ///
    /// # Errors
    /// It is no regular file, longer than `most` bytes, or cannot be read.
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>>;

    /// The entries of a directory, without `.` and `..`; `None` where nothing is.
    ///
    /// # Errors
    /// It is no directory, or cannot be read.
    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>>;
}

/// Changes a tree. Nobody else changes context nodes in it meanwhile.
///
/// What is changed becomes durable in the order in which it is done, and by [`Files::sync`].
/// An [`Files::write`] that is broken off may leave a part of the content; the others are whole
/// or not done.
pub trait Files: Reads {
    /// Makes a directory and those above it; one that is there will do.
    ///
    /// # Errors
    /// Something else is in the way, or it cannot be made.
    fn make_dir(&mut self, path: &str) -> Result<()>;

    /// Writes a file, new or not.
    ///
    /// # Errors
    /// It cannot be written; a part may be.
    fn write(&mut self, path: &str, content: &[u8]) -> Result<()>;

    /// Renames a file or a directory. A file that is there is replaced, and so is a directory
    /// without entries by a directory.
    ///
    /// # Errors
    /// There is nothing to rename, or something else is in the way; nothing was changed.
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    fn remove(&mut self, path: &str) -> Result<()>;

    /// Removes a directory that has no entries.
    ///
    /// # Errors
    /// It has some, or cannot be removed.
    fn remove_dir(&mut self, path: &str) -> Result<()>;

    /// Returns once all that was done before is on the disk.
    ///
    /// # Errors
    /// It could not be synced.
    fn sync(&mut self) -> Result<()>;
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDirEntry {
    /// Its name; what is no text in it is replaced, so that it is none of a node's.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Why a tree did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    /// What is wrong, and with which path.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether what is there is not what was expected: of another kind, or too long.
    pub is_unfit: bool,
}

/// The result of a step in a tree.
pub type Result<T> = std::result::Result<T, FileError>;

impl<R: Reads + ?Sized> Reads for &mut R {
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        (**self).read(path, most)
    }

    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>> {
        (**self).list(path)
    }
}

impl<F: Files + ?Sized> Files for &mut F {
    fn make_dir(&mut self, path: &str) -> Result<()> {
        (**self).make_dir(path)
    }

    fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        (**self).write(path, content)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        (**self).rename(from, to)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        (**self).remove(path)
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        (**self).remove_dir(path)
    }

    fn sync(&mut self) -> Result<()> {
        (**self).sync()
    }
}
