//! `fs_inode` and `acetate_inode`.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::delta::{Ino, InodeRow, Result};
use crate::vfs::{Caller, FileKind};

use super::{copy_up, opaque, origin, redirect, symlink, value};

/// First columns of `copy_up` and `origin` in the joined row.
const COPY_UP_AT: usize = 15;
const ORIGIN_AT: usize = 17;

/// The inode `ino` with its rows in our tables.
pub fn get(conn: &Connection, ino: Ino) -> Result<Option<InodeRow>> {
    let mut statement = conn.prepare_cached(concat!(
        "SELECT i.mode, i.nlink, i.uid, i.gid, i.size, i.rdev, i.atime, i.atime_nsec,
                i.mtime, i.mtime_nsec, i.ctime, i.ctime_nsec,
                a.subdirs, a.holes, a.create_verifier, ",
        copy_up::columns!(),
        ", ",
        origin::columns!(),
        " FROM fs_inode i
         LEFT JOIN acetate_inode a ON a.ino = i.ino
         LEFT JOIN acetate_copy_up u ON u.delta_ino = i.ino
         LEFT JOIN acetate_origin o ON o.delta_ino = i.ino
         WHERE i.ino = ?1",
    ))?;
    Ok(statement.query_row([ino.0.cast_signed()], |row| read(row, ino)).optional()?)
}

fn read(row: &Row<'_>, ino: Ino) -> rusqlite::Result<InodeRow> {
    let (kind, mode) = split_mode(value::int(row, 0)?);
    Ok(InodeRow {
        ino,
        kind,
        mode,
        nlink: value::count(row, 1)?,
        uid: owner(value::int(row, 2)?),
        gid: owner(value::int(row, 3)?),
        size: value::unsigned(row, 4)?,
        rdev: value::unpack_device(value::int(row, 5)?),
        atime: value::time(row, 6, 7)?,
        mtime: value::time(row, 8, 9)?,
        ctime: value::time(row, 10, 11)?,
        subdirs: match row.get_ref(12)? {
            ValueRef::Null => None,
            _ => Some(value::count(row, 12)?),
        },
        holes: value::unsigned(row, 13)?,
        create_verifier: value::bytes(row, 14)?.try_into().ok(),
        copy_up: copy_up::read(row, COPY_UP_AT)?,
        origin: origin::read(row, ORIGIN_AT)?,
    })
}

/// Splits `st_mode` into type and permission bits. Without a valid type the inode counts as a
/// regular file, so that its content stays accessible.
pub fn split_mode(mode: i64) -> (FileKind, u32) {
    let mode = (mode & 0o177_777) as u32;
    (FileKind::from_mode(mode).unwrap_or(FileKind::Regular), mode & 0o7777)
}

/// An owner that is not a 32-bit number maps to [`Caller::NOBODY`].
fn owner(id: i64) -> u32 {
    u32::try_from(id).unwrap_or(Caller::NOBODY)
}

/// Inserts or replaces the inode with its rows in our tables, but for its copy-up.
pub fn put(conn: &Connection, inode: &InodeRow) -> Result<()> {
    put_own(conn, inode)?;
    put_side(conn, inode)?;
    match &inode.origin {
        Some(origin) => origin::put(conn, inode.ino, origin),
        None => origin::delete(conn, inode.ino),
    }
}

/// Inserts or updates the row in `fs_inode`.
fn put_own(conn: &Connection, inode: &InodeRow) -> Result<()> {
    let row = params![
        inode.ino.0.cast_signed(),
        inode.st_mode(),
        inode.nlink,
        inode.uid,
        inode.gid,
        inode.size.cast_signed(),
        inode.atime.secs,
        inode.mtime.secs,
        inode.ctime.secs,
        value::pack_device(inode.rdev),
        inode.atime.nanos,
        inode.mtime.nanos,
        inode.ctime.nanos,
    ];
    let mut update = conn.prepare_cached(
        "UPDATE OR FAIL fs_inode SET mode = ?2, nlink = ?3, uid = ?4, gid = ?5, size = ?6,
           atime = ?7, mtime = ?8, ctime = ?9, rdev = ?10, atime_nsec = ?11, mtime_nsec = ?12,
           ctime_nsec = ?13
         WHERE ino = ?1",
    )?;
    // Not `ON CONFLICT DO UPDATE`, whose update runs with `ABORT` (`old_rows`, `watch`).
    if update.execute(row)? == 0 {
        let mut insert = conn.prepare_cached(
            "INSERT OR FAIL INTO fs_inode (ino, mode, nlink, uid, gid, size, atime, mtime, ctime,
               rdev, atime_nsec, mtime_nsec, ctime_nsec)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        insert.execute(row)?;
    }
    Ok(())
}

/// Stores the row in `acetate_inode`, or deletes it if all columns have defaults (invariant D4).
fn put_side(conn: &Connection, inode: &InodeRow) -> Result<()> {
    let ino = inode.ino.0.cast_signed();
    if inode.subdirs.is_none() && inode.holes == 0 && inode.create_verifier.is_none() {
        return delete_side(conn, ino);
    }
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_inode (ino, subdirs, holes, create_verifier)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT(ino) DO UPDATE SET subdirs = excluded.subdirs, holes = excluded.holes,
           create_verifier = excluded.create_verifier
         WHERE (subdirs, holes, create_verifier)
           IS NOT (excluded.subdirs, excluded.holes, excluded.create_verifier)",
    )?;
    let holes = inode.holes.cast_signed();
    statement.execute(params![ino, inode.subdirs, holes, inode.create_verifier])?;
    Ok(())
}

fn delete_side(conn: &Connection, ino: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM acetate_inode WHERE ino = ?1")?.execute([ino])?;
    Ok(())
}

/// Deletes an inode and its rows in other tables.
pub fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    let number = ino.0.cast_signed();
    conn.prepare_cached("DELETE FROM fs_inode WHERE ino = ?1")?.execute([number])?;
    conn.prepare_cached("DELETE FROM fs_data WHERE ino = ?1")?.execute([number])?;
    // An empty directory can still have invisible entries of other implementations: invalid names
    // and entries without an inode.
    conn.prepare_cached("DELETE FROM fs_dentry WHERE parent_ino = ?1")?.execute([number])?;
    redirect::delete(conn, ino)?;
    opaque::delete(conn, ino)?;
    symlink::delete(conn, ino)?;
    delete_side(conn, number)?;
    copy_up::delete(conn, ino)?;
    origin::delete(conn, ino)?;
    // Not in origin::delete: a row of another implementation is deleted only with its inode.
    conn.prepare_cached("DELETE FROM fs_origin WHERE delta_ino = ?1")?.execute([number])?;
    Ok(())
}

/// Sets every `nlink` to the number of entries and clears the subdirectory counts, because other
/// implementations count both differently. Returns how many `nlink` were wrong.
pub fn recount(conn: &Connection) -> Result<usize> {
    let count = "UPDATE OR FAIL fs_inode
         SET nlink = (SELECT count(*) FROM fs_dentry d WHERE d.ino = fs_inode.ino)
         WHERE ino <> 1
           AND nlink IS NOT (SELECT count(*) FROM fs_dentry d WHERE d.ino = fs_inode.ino)";
    let mut wrong = conn.execute(count, [])?;
    wrong +=
        conn.execute("UPDATE OR FAIL fs_inode SET nlink = 1 WHERE ino = 1 AND nlink IS NOT 1", [])?;
    forget_subdirs(conn)?;
    Ok(wrong)
}

/// Deletes our rows of inodes that another implementation deleted without them.
pub fn forget_gone(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "DELETE FROM acetate_inode WHERE ino NOT IN (SELECT ino FROM fs_inode);
         DELETE FROM acetate_origin WHERE delta_ino NOT IN (SELECT ino FROM fs_inode);
         DELETE FROM acetate_copy_up WHERE delta_ino NOT IN (SELECT ino FROM fs_inode);
         DELETE FROM acetate_redirect WHERE delta_ino NOT IN (SELECT ino FROM fs_inode);
         DELETE FROM acetate_opaque WHERE delta_ino NOT IN (SELECT ino FROM fs_inode);",
    )?;
    Ok(())
}

/// Clears the subdirectory counts; the overlay counts again on demand.
pub fn forget_subdirs(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "DELETE FROM acetate_inode WHERE holes = 0 AND create_verifier IS NULL;
         UPDATE OR FAIL acetate_inode SET subdirs = NULL WHERE subdirs IS NOT NULL;",
    )?;
    Ok(())
}
