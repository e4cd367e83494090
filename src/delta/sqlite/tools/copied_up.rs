//! Reads and updates copied-up objects when a session is used over a moved or copied base.

use rusqlite::{Connection, params};

use crate::base::BasePath;
use crate::delta::{Original, Result};
use crate::vfs::{FileId, FileKind, Time};

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::inode::split_mode;
use crate::delta::sqlite::table::{link, original, value};

/// A base object as it was when it was copied up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedUp {
    /// The inode of the delta object.
    pub delta_ino: i64,
    /// The object's path in the base.
    pub path: BasePath,
    /// The file number that the export shows.
    pub fileid: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Its number of hard links.
    pub nlink: u32,
    /// Size of a regular file, in bytes.
    pub size: u64,
    /// Its last change of content.
    pub mtime: Time,
    /// Whether its copy-up is not finished.
    pub is_pending: bool,
}

/// The counterpart of a copied-up object in another base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedFileId {
    /// The file number that the export shows.
    pub fileid: FileId,
    /// Host device number.
    pub dev: u64,
    /// Host inode number.
    pub ino: u64,
    /// Its number of hard links; 1 if it had one when it was copied up.
    pub nlink: u32,
    /// Last change of content or attributes; `None` if the object differs from its state at
    /// copy-up.
    pub ctime: Option<Time>,
}

impl Session {
    /// Whether the session holds any object except the root, or any whiteout.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn has_changes(&self) -> Result<bool> {
        let conn = open_read_only(&self.path)?;
        let any = "SELECT 1 FROM fs_inode WHERE ino <> 1 UNION ALL SELECT 1 FROM fs_whiteout";
        Ok(conn.prepare(any)?.exists([])?)
    }

    /// The first `most` copied-up objects, without the root.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn copied_up(&self, most: usize) -> Result<Vec<CopiedUp>> {
        let conn = open_read_only(&self.path)?;
        let mut statement = conn.prepare(
            "SELECT o.delta_ino, o.base_path, i.mode, o.base_ino, o.nlink, o.size, o.mtime,
               o.mtime_nsec, c.next_byte < c.end_byte
             FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
             LEFT JOIN acetate_copy_up c ON c.delta_ino = o.delta_ino
             WHERE o.delta_ino <> 1 ORDER BY o.delta_ino LIMIT ?1",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query([most])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(path) = BasePath::from_bytes(value::bytes(row, 1)?) else { continue };
            let (kind, _) = split_mode(value::int(row, 2)?);
            found.push(CopiedUp {
                delta_ino: value::int(row, 0)?,
                path,
                fileid: FileId(value::unsigned(row, 3)?),
                kind,
                nlink: value::count(row, 4)?,
                size: value::unsigned(row, 5)?,
                mtime: value::time(row, 6, 7)?,
                is_pending: row.get::<_, Option<bool>>(8)?.unwrap_or(false),
            });
        }
        Ok(found)
    }

    /// Records the counterparts of these copies in the base that the session will use from now on;
    /// `None` if that base has none. Call before the writer is opened.
    ///
    /// Counts of hidden names are kept only for copied-up files. For other files, the session does
    /// not record which file of the new base has the names.
    ///
    /// # Errors
    /// As [`Session::record_base`].
    pub fn record_moved(&mut self, moved: &[(&CopiedUp, Option<CopiedFileId>)]) -> Result<()> {
        self.before_writer(|conn| {
            let mut links = Vec::new();
            for (copy, found) in moved {
                let is_linked = copy.nlink > 1 && copy.kind != FileKind::Directory;
                let Some(found) = found else {
                    if is_linked {
                        // Another file may have its old number, and that file's names must not lead
                        // to this copy.
                        let one = "UPDATE acetate_origin SET nlink = 1 WHERE delta_ino = ?1";
                        conn.prepare_cached(one)?.execute([copy.delta_ino])?;
                    }
                    continue;
                };
                renumber(conn, copy.delta_ino, found)?;
                if is_linked && found.nlink > 1 {
                    links.push((found.fileid, link::hidden(conn, copy.fileid)?));
                }
            }
            link::replace_all(conn, &links)
        })
    }

    /// Gives originals the numbers that the base which the session will use from now on has at
    /// their paths, as `number` tells. Call before the writer is opened.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn renumber_originals(
        &mut self,
        number: &mut dyn FnMut(&Original) -> Option<FileId>,
    ) -> Result<()> {
        self.before_writer(|conn| original::renumber(conn, number))
    }
}

fn renumber(conn: &Connection, delta_ino: i64, found: &CopiedFileId) -> Result<()> {
    let CopiedFileId { fileid, dev, ino, nlink, ctime } = *found;
    let (fileid, dev, ino) = (fileid.0.cast_signed(), dev.cast_signed(), ino.cast_signed());
    let (secs, nanos) = (ctime.map(|ctime| ctime.secs), ctime.map(|ctime| ctime.nanos));
    conn.prepare_cached(
        "UPDATE acetate_origin SET base_ino = ?2, dev = ?3, ino = ?4, nlink = ?5,
           ctime = ifnull(?6, ctime), ctime_nsec = ifnull(?7, ctime_nsec)
         WHERE delta_ino = ?1",
    )?
    .execute(params![delta_ino, fileid, dev, ino, nlink, secs, nanos])?;
    // In a sealed session, `fs_origin` has no row for it.
    conn.prepare_cached("UPDATE fs_origin SET base_ino = ?2 WHERE delta_ino = ?1")?
        .execute([delta_ino, fileid])?;
    Ok(())
}
