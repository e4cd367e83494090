//! Finds files with missing chunks and names that are not UTF-8: readers that follow the
//! specification strictly fail on them.

use rusqlite::params;

use crate::delta::Result;

use super::check::InodePaths;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::chunk::{STORED_CHUNKS, WANTED_CHUNKS};
use crate::delta::sqlite::table::value;

/// Names and link targets that are not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NonUtf8Names {
    /// How many there are.
    pub count: u64,
    /// The paths of the first ones; for a link target, the path of the link.
    pub first: Vec<Vec<u8>>,
}

impl Session {
    /// The bytes of zeros needed to store every chunk, except for chunks that are still the base's.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn hole_bytes(&self) -> Result<u64> {
        let conn = open_read_only(&self.path)?;
        // For a file with a pending copy-up, only `holes` excludes the chunks that are still the
        // base's.
        let mut statement = conn.prepare(&format!(
            "SELECT ifnull(sum(CASE WHEN u.delta_ino IS NULL THEN {WANTED_CHUNKS} - {STORED_CHUNKS}
               ELSE ifnull(a.holes, 0) END), 0) + ?1
             FROM fs_inode i LEFT JOIN acetate_copy_up u ON u.delta_ino = i.ino
               LEFT JOIN acetate_inode a ON a.ino = i.ino
             WHERE i.mode & 61440 = 32768 AND i.size > 0"
        ))?;
        let chunk = self.config.chunk_bytes;
        let holes = statement.query_row(params![0, chunk.cast_signed()], |r| value::unsigned(r, 0));
        Ok(holes?.saturating_mul(chunk))
    }

    /// The names and link targets that are not UTF-8; paths of the first `most`.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn odd_names(&self, most: usize) -> Result<NonUtf8Names> {
        let conn = open_read_only(&self.path)?;
        conn.pragma_update(None, "query_only", false)?;
        let paths = InodePaths::new(&conn)?;
        let mut odd = NonUtf8Names::default();
        let mut statement = conn.prepare(
            "SELECT ino FROM fs_dentry WHERE typeof(name) = 'blob'
             UNION ALL SELECT ino FROM fs_symlink WHERE typeof(target) = 'blob'",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            odd.count += 1;
            if odd.first.len() < most {
                odd.first.extend(paths.of(value::int(row, 0)?)?);
            }
        }
        Ok(odd)
    }
}
