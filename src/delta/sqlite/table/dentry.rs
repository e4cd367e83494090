//! `fs_dentry`: directory entries.
//!
//! Lookups try a name as TEXT and as BLOB, because other programs may have stored either. Entries
//! without an inode, and names that no client can send, are skipped.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Ino, Result, StoreError};
use crate::vfs::{FileId, Name};

use super::inode;
use super::value::{self, Bytes};

/// The inode that `name` in `parent` points to.
pub fn get(conn: &Connection, parent: Ino, name: &Name) -> Result<Option<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT d.ino FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
         WHERE d.parent_ino = ?1 AND d.name = ?2
         UNION ALL
         SELECT d.ino FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
         WHERE d.parent_ino = ?1 AND d.name = CAST(?2 AS BLOB)
         LIMIT 1",
    )?;
    let key = params![parent.0.cast_signed(), Bytes(name.as_bytes())];
    Ok(statement.query_row(key, |row| value::unsigned(row, 0)).optional()?.map(Ino))
}

/// As [`get`], for a directory whose names are all stored in our form: half the time.
pub fn get_text(conn: &Connection, parent: Ino, name: &Name) -> Result<Option<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT d.ino FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
         WHERE d.parent_ino = ?1 AND d.name = ?2",
    )?;
    let key = params![parent.0.cast_signed(), Bytes(name.as_bytes())];
    Ok(statement.query_row(key, |row| value::unsigned(row, 0)).optional()?.map(Ino))
}

/// Whether `parent` has a name that is stored as BLOB.
pub fn any_blob(conn: &Connection, parent: Ino) -> Result<bool> {
    // BLOBs sort after all TEXT.
    let mut statement =
        conn.prepare_cached("SELECT 1 FROM fs_dentry WHERE parent_ino = ?1 AND name >= x''")?;
    Ok(statement.exists([parent.0.cast_signed()])?)
}

/// Calls `each` for every visible entry of `parent`.
pub fn list(
    conn: &Connection,
    parent: Ino,
    each: &mut dyn FnMut(Name, Ino, u32, FileId),
) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "SELECT d.name, d.ino, i.mode, o.base_ino
         FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
         LEFT JOIN acetate_origin o ON o.delta_ino = d.ino
         WHERE d.parent_ino = ?1",
    )?;
    let mut rows = statement.query([parent.0.cast_signed()])?;
    while let Some(row) = rows.next()? {
        let Ok(name) = Name::new(value::bytes(row, 0)?) else { continue };
        let ino = Ino(value::unsigned(row, 1)?);
        let (kind, mode) = inode::split_mode(value::int(row, 2)?);
        let fileid = row
            .get::<_, Option<i64>>(3)?
            .map_or_else(|| ino.fileid(), |base| FileId(base.cast_unsigned()));
        each(name, ino, kind.mode_bits() | mode, fileid);
    }
    Ok(())
}

/// Whether `parent` has a visible entry.
pub fn any(conn: &Connection, parent: Ino) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "SELECT d.name FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
         WHERE d.parent_ino = ?1",
    )?;
    let mut rows = statement.query([parent.0.cast_signed()])?;
    while let Some(row) = rows.next()? {
        if Name::new(value::bytes(row, 0)?).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One visible entry that points to `ino`.
pub fn name_of(conn: &Connection, ino: Ino) -> Result<Option<(Ino, Name)>> {
    let mut statement =
        conn.prepare_cached("SELECT parent_ino, name FROM fs_dentry WHERE ino = ?1 ORDER BY id")?;
    let mut rows = statement.query([ino.0.cast_signed()])?;
    while let Some(row) = rows.next()? {
        if let Ok(name) = Name::new(value::bytes(row, 1)?) {
            return Ok(Some((Ino(value::unsigned(row, 0)?), name)));
        }
    }
    Ok(None)
}

/// All visible entries that point to `ino`.
pub fn names_of(conn: &Connection, ino: Ino) -> Result<Vec<(Ino, Name)>> {
    let mut statement =
        conn.prepare_cached("SELECT parent_ino, name FROM fs_dentry WHERE ino = ?1 ORDER BY id")?;
    let mut rows = statement.query([ino.0.cast_signed()])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(name) = Name::new(value::bytes(row, 1)?) {
            names.push((Ino(value::unsigned(row, 0)?), name));
        }
    }
    Ok(names)
}

/// Adds an entry; replaces an invisible one of the same name that has no inode.
pub fn insert(conn: &Connection, id: i64, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
    // No saved row is ignored with it: the triggers save none that is there.
    let mut insert = conn.prepare_cached(
        "INSERT OR IGNORE INTO fs_dentry (name, parent_ino, ino, id) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let (name_key, parent_key) = (Bytes(name.as_bytes()), parent.0.cast_signed());
    if insert.execute(params![name_key, parent_key, ino.0.cast_signed(), id])? > 0 {
        return Ok(());
    }
    let mut replace = conn.prepare_cached(
        "UPDATE OR FAIL fs_dentry SET ino = ?3 WHERE parent_ino = ?2 AND name = ?1
           AND NOT EXISTS (SELECT 1 FROM fs_inode i WHERE i.ino = fs_dentry.ino)",
    )?;
    if replace.execute(params![name_key, parent_key, ino.0.cast_signed()])? == 0 {
        let text = format!("directory {} has an entry {name:?} already", parent.0);
        return Err(StoreError::corrupt(text));
    }
    Ok(())
}

/// Moves an entry of `ino` to another directory and name. Its id stays, so that the table's order
/// and the index on `ino` do not change. Returns `false` without a change if there is no such
/// entry, or the new name is in use.
pub fn rename(conn: &Connection, from: (Ino, &Name), to: (Ino, &Name), ino: Ino) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "UPDATE OR IGNORE fs_dentry SET parent_ino = ?4, name = ?5
         WHERE parent_ino = ?1 AND name = ?2 AND ino = ?3",
    )?;
    let (from, name) = (from.0.0.cast_signed(), Bytes(from.1.as_bytes()));
    let (to, new_name) = (to.0.0.cast_signed(), Bytes(to.1.as_bytes()));
    Ok(statement.execute(params![from, name, ino.0.cast_signed(), to, new_name])? > 0)
}

/// Removes an entry. `may_be_blob` says whether a name that could be TEXT may be stored as BLOB
/// too.
pub fn delete(conn: &Connection, parent: Ino, name: &Name, may_be_blob: bool) -> Result<()> {
    let mut delete =
        conn.prepare_cached("DELETE FROM fs_dentry WHERE parent_ino = ?1 AND name = ?2")?;
    // Of two entries that differ only in type, one is visible: delete both.
    for key in value::keys(name.as_bytes()).into_iter().take(1 + usize::from(may_be_blob)) {
        delete.execute(params![parent.0.cast_signed(), key])?;
    }
    Ok(())
}

/// The largest entry id among the rows; 0 if there are none.
pub fn last_id(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM fs_dentry", [], |row| row.get(0))?)
}
