//! `acetate_origin` and `fs_origin`: the base objects that delta inodes were copied up from.
//!
//! An `fs_origin` row without a row of ours comes from another implementation, which numbers base
//! objects by its own counter. Such rows are kept and not used.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use crate::base::BasePath;
use crate::delta::{Ino, Origin, Result};
use crate::vfs::FileId;

use super::{meta, value};

/// The columns of the table `o` that [`read`] expects.
macro_rules! columns {
    () => {
        "o.base_ino, o.base_path, o.dev, o.ino, o.nlink, o.size, o.mtime, o.mtime_nsec, o.ctime, \
         o.ctime_nsec, o.mode, o.uid, o.gid"
    };
}
pub(super) use columns;

/// Reads an origin from a joined row, from column `at` on; `None` if the join found no row.
pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Origin>> {
    if row.get_ref(at)? == ValueRef::Null {
        return Ok(None);
    }
    let Some(path) = BasePath::from_bytes(value::bytes(row, at + 1)?) else {
        return Err(rusqlite::Error::InvalidColumnName("acetate_origin.base_path".to_owned()));
    };
    let attributes = match row.get_ref(at + 10)? {
        ValueRef::Null => None,
        _ => Some([
            value::count(row, at + 10)?,
            value::count(row, at + 11)?,
            value::count(row, at + 12)?,
        ]),
    };
    Ok(Some(Origin {
        fileid: FileId(value::unsigned(row, at)?),
        path,
        dev: value::int(row, at + 2)?.cast_unsigned(),
        ino: value::int(row, at + 3)?.cast_unsigned(),
        nlink: value::count(row, at + 4)?,
        size: value::unsigned(row, at + 5)?,
        mtime: value::time(row, at + 6, at + 7)?,
        ctime: value::time(row, at + 8, at + 9)?,
        attributes,
    }))
}

/// Stores the origin of a delta inode in both tables (invariant O1), if it has changed.
pub(super) fn put(conn: &Connection, ino: Ino, origin: &Origin) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_origin (delta_ino, base_ino, base_path, dev, ino, nlink, size,
           mtime, mtime_nsec, ctime, ctime_nsec, mode, uid, gid)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT(delta_ino) DO UPDATE SET base_ino = excluded.base_ino,
           base_path = excluded.base_path, dev = excluded.dev, ino = excluded.ino,
           nlink = excluded.nlink, size = excluded.size, mtime = excluded.mtime,
           mtime_nsec = excluded.mtime_nsec, ctime = excluded.ctime,
           ctime_nsec = excluded.ctime_nsec, mode = excluded.mode, uid = excluded.uid,
           gid = excluded.gid
         WHERE (base_ino, base_path, dev, ino, nlink, size, mtime, mtime_nsec, ctime, ctime_nsec,
                mode, uid, gid)
           IS NOT (excluded.base_ino, excluded.base_path, excluded.dev, excluded.ino,
                   excluded.nlink, excluded.size, excluded.mtime, excluded.mtime_nsec,
                   excluded.ctime, excluded.ctime_nsec, excluded.mode, excluded.uid,
                   excluded.gid)",
    )?;
    let changed = statement.execute(params![
        ino.0.cast_signed(),
        origin.fileid.0.cast_signed(),
        origin.path.as_bytes(),
        origin.dev.cast_signed(),
        origin.ino.cast_signed(),
        origin.nlink,
        origin.size.cast_signed(),
        origin.mtime.secs,
        origin.mtime.nanos,
        origin.ctime.secs,
        origin.ctime.nanos,
        origin.attributes.map(|[mode, _, _]| mode),
        origin.attributes.map(|[_, uid, _]| uid),
        origin.attributes.map(|[_, _, gid]| gid),
    ])?;
    // Runs with every change of the inode; an unchanged row costs only the lookup.
    if changed > 0 {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO fs_origin (delta_ino, base_ino) VALUES (?, ?)",
        )?
        .execute(params![ino.0.cast_signed(), origin.fileid.0.cast_signed()])?;
    }
    Ok(())
}

/// Deletes the origin of a delta inode from both tables, if acetate stored it.
pub(super) fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    let number = ino.0.cast_signed();
    let ours = conn
        .prepare_cached("DELETE FROM acetate_origin WHERE delta_ino = ?1")?
        .execute([number])?;
    if ours > 0 {
        conn.prepare_cached("DELETE FROM fs_origin WHERE delta_ino = ?1")?.execute([number])?;
    }
    Ok(())
}

/// Fills `fs_origin` from `acetate_origin`, or empties it (invariant O1).
pub fn show(conn: &Connection, shown: bool) -> Result<()> {
    let was_hidden = meta::get::<String>(conn, meta::SEALED_FOR)?.is_some();
    if !shown {
        conn.execute("DELETE FROM fs_origin WHERE 1", [])?;
        return meta::put(conn, meta::SEALED_FOR, "agentfs");
    }
    if was_hidden {
        conn.execute(
            "INSERT OR REPLACE INTO fs_origin (delta_ino, base_ino)
             SELECT delta_ino, base_ino FROM acetate_origin",
            [],
        )?;
        conn.execute("DELETE FROM acetate_meta WHERE key = ?1", [meta::SEALED_FOR])?;
    }
    Ok(())
}

/// The existing delta inodes that were copied up from base objects with this file number.
pub fn copied_up(conn: &Connection, base: FileId) -> Result<Vec<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT o.delta_ino FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
         WHERE o.base_ino = ?1 ORDER BY o.delta_ino",
    )?;
    let inos =
        statement.query_map([base.0.cast_signed()], |row| Ok(Ino(value::unsigned(row, 0)?)))?;
    Ok(inos.collect::<rusqlite::Result<_>>()?)
}

/// The base paths from which existing delta directories were copied up.
pub fn dirs(conn: &Connection) -> Result<Vec<BasePath>> {
    let mut statement = conn.prepare_cached(
        "SELECT o.base_path FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
         WHERE i.mode & 61440 = 16384",
    )?;
    let paths = statement.query_map([], |row| value::bytes(row, 0).map(BasePath::from_bytes))?;
    Ok(paths.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The copied-up files that had several hard links in the base.
pub fn links(conn: &Connection) -> Result<Vec<Ino>> {
    files(conn, "o.nlink > 1")
}

/// The copied-up files that had a single name in the base.
pub fn single_names(conn: &Connection) -> Result<Vec<Ino>> {
    files(conn, "o.nlink <= 1")
}

/// The copied-up files to which a condition applies. Not directories: their link count is that of
/// subdirectories.
fn files(conn: &Connection, condition: &str) -> Result<Vec<Ino>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT o.delta_ino FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
         WHERE {condition} AND i.mode & 61440 <> 16384 ORDER BY o.delta_ino",
    ))?;
    let inos = statement.query_map([], |row| Ok(Ino(value::unsigned(row, 0)?)))?;
    Ok(inos.collect::<rusqlite::Result<_>>()?)
}
