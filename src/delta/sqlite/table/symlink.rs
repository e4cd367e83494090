//! `fs_symlink`: targets of symbolic links.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Ino, Result};

use super::value::{self, Bytes};

/// A symbolic link's target.
pub fn get(conn: &Connection, ino: Ino) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached("SELECT target FROM fs_symlink WHERE ino = ?1")?;
    let found =
        statement.query_row([ino.0.cast_signed()], |row| value::bytes(row, 0).map(<[u8]>::to_vec));
    Ok(found.optional()?)
}

/// Stores a symbolic link's target.
pub fn put(conn: &Connection, ino: Ino, target: &[u8]) -> Result<()> {
    let mut statement =
        conn.prepare_cached("INSERT OR REPLACE INTO fs_symlink (ino, target) VALUES (?1, ?2)")?;
    statement.execute(params![ino.0.cast_signed(), Bytes(target)])?;
    Ok(())
}

/// Deletes a target, if there is one.
pub(super) fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    let mut statement = conn.prepare_cached("DELETE FROM fs_symlink WHERE ino = ?1")?;
    statement.execute([ino.0.cast_signed()])?;
    Ok(())
}
