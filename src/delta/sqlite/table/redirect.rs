//! `acetate_redirect`: delta directories redirected to a base directory at another path.

use rusqlite::{Connection, OptionalExtension, params};

use crate::base::BasePath;
use crate::delta::{Ino, Result, StoreError};

use super::value;

/// The base directory to which the delta directory `ino` is redirected.
pub fn get(conn: &Connection, ino: Ino) -> Result<Option<BasePath>> {
    let mut statement =
        conn.prepare_cached("SELECT base_path FROM acetate_redirect WHERE delta_ino = ?1")?;
    let found = statement
        .query_row([ino.0.cast_signed()], |row| value::bytes(row, 0).map(BasePath::from_bytes));
    match found.optional()? {
        None => Ok(None),
        Some(Some(path)) => Ok(Some(path)),
        Some(None) => {
            Err(StoreError::corrupt(format!("acetate_redirect {} holds no base path", ino.0)))
        }
    }
}

/// The redirected delta directories that still exist.
pub fn all(conn: &Connection) -> Result<Vec<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.delta_ino FROM acetate_redirect r JOIN fs_inode i ON i.ino = r.delta_ino
         ORDER BY r.delta_ino",
    )?;
    let inos = statement.query_map([], |row| Ok(Ino(value::unsigned(row, 0)?)))?;
    Ok(inos.collect::<rusqlite::Result<_>>()?)
}

/// The delta directory that is redirected to exactly `base`, if it still exists.
pub fn of_base(conn: &Connection, base: &BasePath) -> Result<Option<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.delta_ino FROM acetate_redirect r JOIN fs_inode i ON i.ino = r.delta_ino
         WHERE r.base_path = ?1",
    )?;
    let found = statement.query_row([base.as_bytes()], |row| value::unsigned(row, 0));
    Ok(found.optional()?.map(Ino))
}

/// Whether a delta directory that still exists is redirected to `base`, or to a directory below it.
pub fn any_within(conn: &Connection, base: &BasePath) -> Result<bool> {
    if base.is_root() {
        let mut statement = conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM acetate_redirect r
               JOIN fs_inode i ON i.ino = r.delta_ino)",
        )?;
        return Ok(statement.query_row([], |row| row.get(0))?);
    }
    // `0` follows `/`.
    let mut statement = conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM acetate_redirect r
           JOIN fs_inode i ON i.ino = r.delta_ino
           WHERE r.base_path = ?1 OR (r.base_path > ?2 AND r.base_path < ?3))",
    )?;
    let bytes = base.as_bytes();
    let bounds = [bytes.to_vec(), [bytes, b"/"].concat(), [bytes, b"0"].concat()];
    Ok(statement.query_row(bounds, |row| row.get(0))?)
}

/// Redirects the delta directory `ino` to `base` (invariant R1: no two redirects to one base
/// directory).
pub fn put(conn: &Connection, ino: Ino, base: &BasePath) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_redirect (delta_ino, base_path) VALUES (?1, ?2)
         ON CONFLICT(delta_ino) DO UPDATE SET base_path = excluded.base_path",
    )?;
    match statement.execute(params![ino.0.cast_signed(), base.as_bytes()]) {
        Ok(_) => Ok(()),
        Err(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
        {
            Err(StoreError::corrupt(format!("{base:?} is redirected to already")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes a redirect, if there is one.
pub fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    let mut statement = conn.prepare_cached("DELETE FROM acetate_redirect WHERE delta_ino = ?1")?;
    statement.execute([ino.0.cast_signed()])?;
    Ok(())
}
