//! `acetate_original`: base objects as they were before the session's first change.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::base::BasePath;
use crate::delta::{Original, Result};
use crate::vfs::{FileId, FileKind};

use super::value;

/// The columns that [`read`] expects.
const COLUMNS: &str = "base_path, base_ino, mode, uid, gid, size, mtime, mtime_nsec, ctime, \
                       ctime_nsec, digest, content IS NOT NULL";

fn read(row: &Row<'_>) -> rusqlite::Result<Option<Original>> {
    let mode = value::count(row, 2)?;
    let path = BasePath::from_bytes(value::bytes(row, 0)?);
    let (Some(path), Some(kind)) = (path, FileKind::from_mode(mode)) else { return Ok(None) };
    Ok(Some(Original {
        path,
        fileid: FileId(value::unsigned(row, 1)?),
        kind,
        mode: mode & 0o7777,
        uid: value::count(row, 3)?,
        gid: value::count(row, 4)?,
        size: value::unsigned(row, 5)?,
        mtime: value::time(row, 6, 7)?,
        ctime: value::time(row, 8, 9)?,
        digest: value::bytes(row, 10)?.try_into().ok(),
        has_content: row.get(11)?,
    }))
}

/// The original of a base path.
pub fn get(conn: &Connection, path: &BasePath) -> Result<Option<Original>> {
    let sql = format!("SELECT {COLUMNS} FROM acetate_original WHERE base_path = ?1");
    let mut statement = conn.prepare_cached(&sql)?;
    let found = statement.query_row([path.as_bytes()], read).optional()?;
    Ok(found.flatten())
}

/// Whether the original of a base path, or of one below it, is that of a delta file with a name.
///
/// Reads the originals in that range first: most removed names have none.
pub fn any_copied_within(conn: &Connection, path: &BasePath) -> Result<bool> {
    let (from, to) = range_below(path);
    let mut statement = conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM acetate_original b
           CROSS JOIN acetate_origin o ON o.base_ino = b.base_ino AND o.base_path = b.base_path
           JOIN fs_dentry d ON d.ino = o.delta_ino
         WHERE b.base_path = ?1 OR (b.base_path > ?2 AND b.base_path < ?3))",
    )?;
    Ok(statement.query_row(params![path.as_bytes(), from, to], |row| row.get(0))?)
}

/// The stored content or link target of a base path.
pub fn content(conn: &Connection, path: &BasePath) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached(
        "SELECT content FROM acetate_original WHERE base_path = ?1 AND content IS NOT NULL",
    )?;
    let read = |row: &Row<'_>| value::bytes(row, 0).map(<[u8]>::to_vec);
    Ok(statement.query_row([path.as_bytes()], read).optional()?)
}

/// Total size of the stored content, in bytes.
pub fn total_bytes(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare_cached(
        "SELECT ifnull(sum(size), 0) FROM acetate_original WHERE content IS NOT NULL",
    )?;
    Ok(statement.query_row([], |row| value::unsigned(row, 0))?)
}

/// Stores an original, unless the path has one; returns whether it was stored.
pub fn put(conn: &Connection, original: &Original, content: Option<&[u8]>) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "INSERT OR IGNORE INTO acetate_original (base_path, base_ino, mode, uid, gid, size,
           mtime, mtime_nsec, ctime, ctime_nsec, digest, content)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let stored = statement.execute(params![
        original.path.as_bytes(),
        original.fileid.0.cast_signed(),
        original.kind.mode_bits() | original.mode,
        original.uid,
        original.gid,
        original.size.cast_signed(),
        original.mtime.secs,
        original.mtime.nanos,
        original.ctime.secs,
        original.ctime.nanos,
        original.digest.as_ref().map(<[u8; 20]>::as_slice),
        content,
    ])?;
    Ok(stored > 0)
}

/// Deletes the rows of a base path and of all paths below it; returns the size of their content, in
/// bytes.
pub fn remove(conn: &Connection, path: &BasePath) -> Result<u64> {
    if path.is_root() {
        let bytes = total_bytes(conn)?;
        conn.execute("DELETE FROM acetate_original WHERE 1", [])?;
        return Ok(bytes);
    }
    let (from, to) = range_below(path);
    let mut statement = conn.prepare_cached(
        "DELETE FROM acetate_original
         WHERE base_path = ?1 OR (base_path > ?2 AND base_path < ?3)
         RETURNING iif(content IS NULL, 0, size)",
    )?;
    let removed = statement
        .query_map(params![path.as_bytes(), from, to], |row| value::unsigned(row, 0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(removed.into_iter().sum())
}

/// Renames the rows of a base path and of all paths below it.
pub fn rename(conn: &Connection, old: &BasePath, new: &BasePath) -> Result<()> {
    let (from, to) = range_below(old);
    let values = params![old.as_bytes(), from, to, new.as_bytes(), old.as_bytes().len() as i64 + 1];
    // Not `OR REPLACE`, whose deletions SQLite reports to no hook.
    conn.prepare_cached(
        "DELETE FROM acetate_original WHERE base_path IN
           (SELECT CAST(?4 || substr(base_path, ?5) AS BLOB) FROM acetate_original
            WHERE base_path = ?1 OR (base_path > ?2 AND base_path < ?3))",
    )?
    .execute(values)?;
    conn.prepare_cached(
        "UPDATE OR FAIL acetate_original
         SET base_path = CAST(?4 || substr(base_path, ?5) AS BLOB)
         WHERE base_path = ?1 OR (base_path > ?2 AND base_path < ?3)",
    )?
    .execute(values)?;
    Ok(())
}

/// Gives each row the number that `number` returns for it, if any.
pub fn renumber(
    conn: &Connection,
    number: &mut dyn FnMut(&Original) -> Option<FileId>,
) -> Result<()> {
    let mut statement = conn.prepare(&format!("SELECT {COLUMNS} FROM acetate_original"))?;
    let rows = statement.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut update =
        conn.prepare("UPDATE OR FAIL acetate_original SET base_ino = ?2 WHERE base_path = ?1")?;
    for original in rows.into_iter().flatten() {
        if let Some(id) = number(&original).filter(|id| *id != original.fileid) {
            update.execute(params![original.path.as_bytes(), id.0.cast_signed()])?;
        }
    }
    Ok(())
}

/// Exclusive bounds of the paths below a path: `path/` and `path0` (`0` follows `/`).
fn range_below(path: &BasePath) -> (Vec<u8>, Vec<u8>) {
    (([path.as_bytes(), b"/"]).concat(), [path.as_bytes(), b"0"].concat())
}
