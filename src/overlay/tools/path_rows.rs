//! The session's rows for a path, independent of the base. A tool that changes the base compares
//! them before and after, to detect changes by clients.

use crate::delta::{Ino, MergedPath, PendingCopies};
use crate::vfs::{FileId, FileKind, FsError, Time};

use super::tree::TreeView;
use crate::overlay::error::Result;

/// The rows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathRows {
    /// File number and ctime of the object with a dentry there. The ctime of a directory is left
    /// out, because changes of its entries update it.
    pub entry: Option<(FileId, Option<Time>)>,
    /// Whether exactly this path is whited out.
    pub is_whited_out: bool,
}

impl TreeView<'_> {
    /// The rows of a path.
    ///
    /// # Errors
    /// All methods here fail if the session cannot be read.
    pub fn name_state(&self, path: &MergedPath) -> std::result::Result<PathRows, FsError> {
        self.rows_at(path).map_err(|error| error.into_fs())
    }

    fn rows_at(&self, path: &MergedPath) -> Result<PathRows> {
        let txn = self.view.txn;
        let mut found = Some(Ino::ROOT);
        for name in path.names() {
            let Some(dir) = found else { break };
            found = txn.dentry(dir, &name)?;
        }
        let row = match found {
            Some(ino) => txn.inode(ino)?,
            None => None,
        };
        let entry = row.map(|row| {
            let is_dir = row.kind == FileKind::Directory;
            (row.fileid(), (!is_dir).then_some(row.ctime))
        });
        Ok(PathRows { entry, is_whited_out: txn.is_whited_out(path)? })
    }

    /// Whether the session has a copy of the base file `id` with ctime `changed`. A hard link
    /// that only the base has leads to that copy too.
    pub fn has_copy(&self, id: FileId, changed: Time) -> std::result::Result<bool, FsError> {
        let found = self.view.copy_of(id, |row, _| row.ctime == changed);
        Ok(found.map_err(|error| error.into_fs())?.is_some())
    }

    /// Content of large files that is not copied yet.
    pub fn pending_copies(&self) -> std::result::Result<PendingCopies, FsError> {
        let pending = self.view.txn.pending_copies();
        pending.map_err(|error| crate::overlay::error::from_store(&error))
    }
}
