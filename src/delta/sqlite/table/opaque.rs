//! `acetate_opaque`: delta directories through which nothing of the base shows.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Ino, Result};

use super::{meta, value};

/// When the delta directory `ino` became opaque, in seconds since 1970; `None` if it is not.
pub fn since(conn: &Connection, ino: Ino) -> Result<Option<i64>> {
    let mut statement =
        conn.prepare_cached("SELECT created_at FROM acetate_opaque WHERE delta_ino = ?1")?;
    Ok(statement.query_row([ino.0.cast_signed()], |row| value::int(row, 0)).optional()?)
}

/// All opaque directories that still exist.
pub fn all(conn: &Connection) -> Result<Vec<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT q.delta_ino FROM acetate_opaque q JOIN fs_inode i ON i.ino = q.delta_ino
         ORDER BY q.delta_ino",
    )?;
    let inos = statement.query_map([], |row| Ok(Ino(value::unsigned(row, 0)?)))?;
    Ok(inos.collect::<rusqlite::Result<_>>()?)
}

/// Marks a directory as opaque since `created_at`, in seconds since 1970. Raises the file's format,
/// so that programs without opaque directories refuse it (invariant M1).
pub fn put(conn: &Connection, ino: Ino, created_at: i64) -> Result<()> {
    meta::require_format(conn, meta::OPAQUE_FORMAT)?;
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_opaque (delta_ino, created_at) VALUES (?1, ?2)
         ON CONFLICT(delta_ino) DO UPDATE SET created_at = excluded.created_at",
    )?;
    statement.execute(params![ino.0.cast_signed(), created_at])?;
    Ok(())
}

/// Removes a directory's mark, if there is one.
pub fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    let mut statement = conn.prepare_cached("DELETE FROM acetate_opaque WHERE delta_ino = ?1")?;
    statement.execute([ino.0.cast_signed()])?;
    Ok(())
}
