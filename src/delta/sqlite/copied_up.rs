//! What tells another base from the one that a session was made over.

use crate::base::BasePath;
use crate::delta::Result;
use crate::vfs::FileKind;

use super::inode::split_mode;
use super::session::{Session, open_read_only};
use super::value;

/// A base object as it was when it was copied up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedUp {
    /// Its path in the base.
    pub path: BasePath,
    /// Its type.
    pub kind: FileKind,
    /// Bytes of a regular file.
    pub size: u64,
}

impl Session {
    /// Whether the session holds anything but its root, or hides a name of the base.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_changes(&self) -> Result<bool> {
        let conn = open_read_only(&self.path)?;
        let any = "SELECT 1 FROM fs_inode WHERE ino <> 1 UNION ALL SELECT 1 FROM fs_whiteout";
        Ok(conn.prepare(any)?.exists([])?)
    }

    /// The first `most` objects that were copied up from the base, the root left out.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn copied_up(&self, most: usize) -> Result<Vec<CopiedUp>> {
        let conn = open_read_only(&self.path)?;
        let mut statement = conn.prepare(
            "SELECT o.base_path, i.mode, o.size FROM acetate_origin o
             JOIN fs_inode i ON i.ino = o.delta_ino WHERE o.delta_ino <> 1
             ORDER BY o.delta_ino LIMIT ?1",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query([most])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(path) = BasePath::from_bytes(value::bytes(row, 0)?) else { continue };
            let (kind, _) = split_mode(value::int(row, 1)?);
            found.push(CopiedUp { path, kind, size: value::unsigned(row, 2)? });
        }
        Ok(found)
    }
}
