//! What tells another base from the one that a session was made over.

use rusqlite::params;

use crate::base::BasePath;
use crate::delta::Result;
use crate::vfs::{FileKind, Time};

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::inode::split_mode;
use crate::delta::sqlite::table::value;

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

/// A base file of which the session has not copied all content yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncopied {
    /// The inode of the copy.
    pub delta_ino: i64,
    /// The path in the base.
    pub path: BasePath,
    /// Bytes of the base file when its copy began.
    pub size: u64,
    /// Its last change of content then.
    pub mtime: Time,
}

/// What identifies the base file of a copy on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedFileId {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Last change of content or attributes.
    pub ctime: Time,
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

    /// The base files of which content is still to be copied.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn uncopied(&self) -> Result<Vec<Uncopied>> {
        let conn = open_read_only(&self.path)?;
        let mut statement = conn.prepare(
            "SELECT o.delta_ino, o.base_path, o.size, o.mtime, o.mtime_nsec
             FROM acetate_copy_up c JOIN acetate_origin o ON o.delta_ino = c.delta_ino
             WHERE c.next_byte < c.end_byte ORDER BY o.delta_ino",
        )?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(path) = BasePath::from_bytes(value::bytes(row, 1)?) else { continue };
            let (delta_ino, size) = (value::int(row, 0)?, value::unsigned(row, 2)?);
            found.push(Uncopied { delta_ino, path, size, mtime: value::time(row, 3, 4)? });
        }
        Ok(found)
    }

    /// Says where the base files of these copies are now, by the inode of the copy; before the
    /// writer is opened.
    ///
    /// # Errors
    /// As [`Session::record_base`].
    pub fn record_moved(&mut self, moved: &[(i64, CopiedFileId)]) -> Result<()> {
        self.before_writer(|conn| {
            let mut statement = conn.prepare(
                "UPDATE acetate_origin SET dev = ?2, ino = ?3, ctime = ?4, ctime_nsec = ?5
                 WHERE delta_ino = ?1",
            )?;
            for (delta_ino, CopiedFileId { dev, ino, ctime }) in moved {
                let (dev, ino) = (dev.cast_signed(), ino.cast_signed());
                statement.execute(params![delta_ino, dev, ino, ctime.secs, ctime.nanos])?;
            }
            Ok(())
        })
    }
}
