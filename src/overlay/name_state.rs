//! What the rows alone say of a name. It does not depend on the base, so a tool that changes the
//! base can tell by it whether a client changed something since.

use crate::delta::{Ino, MergedPath, PendingCopies};
use crate::vfs::{FileId, FileKind, FsError, Time};

use super::error::Result;
use super::tree::TreeView;

/// What the rows say of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameState {
    /// The object that has an entry there: its number, and when it last changed. A directory's
    /// time is left out, because it follows the entries.
    pub entry: Option<(FileId, Option<Time>)>,
    /// Whether exactly this path is whited out.
    pub is_whited_out: bool,
}

impl TreeView<'_> {
    /// What the rows say of a path.
    ///
    /// # Errors
    /// The session cannot be read; so with all methods here.
    pub fn name_state(&self, path: &MergedPath) -> std::result::Result<NameState, FsError> {
        self.rows_at(path).map_err(|error| error.into_fs())
    }

    fn rows_at(&self, path: &MergedPath) -> Result<NameState> {
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
        Ok(NameState { entry, is_whited_out: txn.is_whited_out(path)? })
    }

    /// Whether the session holds the copied-up base file `id` with ctime `changed`: a name that
    /// only the base has leads to it.
    pub fn has_copy(&self, id: FileId, changed: Time) -> std::result::Result<bool, FsError> {
        let found = self.view.copy_of(id, |row, _| row.ctime == changed);
        Ok(found.map_err(|error| error.into_fs())?.is_some())
    }

    /// How much content of large files is still the base's.
    pub fn pending_copies(&self) -> std::result::Result<PendingCopies, FsError> {
        let pending = self.view.txn.pending_copies();
        pending.map_err(|error| super::error::from_store(&error))
    }
}
