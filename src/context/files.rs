//! The interface of a file tree that stores context nodes. It is small, so that the rules are the
//! same for a served session, for one that is not served, and for tests that fail at each step.
//!
//! Paths are absolute and normalized (`/a/b`). Symbolic links are not followed.

/// Read access to a tree.
pub trait Reads {
    /// Reads a regular file; `None` if the path does not exist.
    ///
    /// # Errors
    /// It is not a regular file, has more than `most` bytes, or cannot be read.
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>>;

    /// The entries of a directory, without `.` and `..`; `None` if the path does not exist.
    ///
    /// # Errors
    /// It is not a directory, or cannot be read.
    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>>;
}

/// Write access to a tree. The caller is the only one that changes context nodes.
///
/// Changes become durable in order, at the latest with [`Files::sync`]. A crash may leave part of a
/// [`Files::write`]; the other operations are atomic.
pub trait Files: Reads {
    /// Creates a directory and its ancestors; existing ones are no error.
    ///
    /// # Errors
    /// Another object is in the way, or the directory cannot be created.
    fn make_dir(&mut self, path: &str) -> Result<()>;

    /// Creates or overwrites a file.
    ///
    /// # Errors
    /// The file cannot be written; part of the content may be.
    fn write(&mut self, path: &str, content: &[u8]) -> Result<()>;

    /// Renames a file or a directory. Replaces an existing file; a directory replaces an empty
    /// directory.
    ///
    /// # Errors
    /// The source does not exist, or the target cannot be replaced; nothing was changed.
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The file does not exist or cannot be removed.
    fn remove(&mut self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The directory is not empty or cannot be removed.
    fn remove_dir(&mut self, path: &str) -> Result<()>;

    /// Syncs all earlier changes to disk.
    ///
    /// # Errors
    /// The sync failed.
    fn sync(&mut self) -> Result<()>;
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDirEntry {
    /// The name. Invalid UTF-8 is replaced, so it never matches a name that a node uses.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Why an operation of a tree failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    /// The error, with the path.
    pub what: String,
    /// How to resolve it.
    pub hint: Option<String>,
    /// Whether the object has another type than expected, or is too long.
    pub is_unfit: bool,
}

/// Result of an operation of a tree.
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
