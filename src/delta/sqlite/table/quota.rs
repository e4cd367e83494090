//! Counts a session's usage from its rows; stores its own limits in `acetate_meta`.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::delta::{Ino, Limits, MergedPath, Result, StoreError, Usage, UsageDelta};

use super::{inode, meta, value, whiteout};

/// The session's own limits.
pub fn limits(conn: &Connection) -> Result<Limits> {
    Ok(Limits {
        bytes: limit(conn, meta::QUOTA_BYTES)?,
        files: limit(conn, meta::QUOTA_FILES)?,
        file_bytes: limit(conn, meta::MAX_FILE_BYTES)?,
    })
}

fn limit(conn: &Connection, key: &str) -> Result<Option<u64>> {
    let Some(stored) = meta::get::<Value>(conn, key)? else { return Ok(None) };
    let limit = match stored {
        Value::Integer(limit) => u64::try_from(limit).ok(),
        _ => None,
    };
    // Ignoring an invalid limit would remove the limit.
    let odd = || {
        StoreError::corrupt(format!(
            "acetate_meta.{key} is no number from 0 on; a repair removes it"
        ))
    };
    limit.map(Some).ok_or_else(odd)
}

/// Stores the limits (invariant M5); a limit above the column's maximum is stored as that maximum.
pub fn put_limits(conn: &Connection, limits: Limits) -> Result<()> {
    for (key, limit) in [
        (meta::QUOTA_BYTES, limits.bytes),
        (meta::QUOTA_FILES, limits.files),
        (meta::MAX_FILE_BYTES, limits.file_bytes),
    ] {
        match limit {
            Some(limit) => meta::put(conn, key, i64::try_from(limit).unwrap_or(i64::MAX))?,
            None => meta::delete(conn, key)?,
        }
    }
    Ok(())
}

/// Counts the usage of a session, with chunks of `chunk` bytes: O(inodes and whiteouts).
pub fn count(conn: &Connection, chunk: u64) -> Result<UsageDelta> {
    let mut statement = conn.prepare(
        "SELECT i.ino, i.mode, i.size, a.holes, i.nlink FROM fs_inode i
         LEFT JOIN acetate_inode a ON a.ino = i.ino",
    )?;
    let mut rows = statement.query([])?;
    let whiteouts = whiteout::below(conn, &MergedPath::root(), None)?;
    let mut sum = UsageDelta::from(Usage::of_whiteouts(whiteouts.files));
    while let Some(row) = rows.next()? {
        sum += usage_of(row, chunk)?.into();
    }
    Ok(sum)
}

/// The usage of one inode; zero if it does not exist.
pub fn of_inode(conn: &Connection, ino: Ino, chunk: u64) -> Result<Usage> {
    let mut statement = conn.prepare_cached(
        "SELECT i.ino, i.mode, i.size, a.holes, i.nlink FROM fs_inode i
         LEFT JOIN acetate_inode a ON a.ino = i.ino WHERE i.ino = ?1",
    )?;
    let found = statement.query_row([ino.0.cast_signed()], |row| usage_of(row, chunk));
    Ok(found.optional()?.unwrap_or_default())
}

fn usage_of(row: &Row<'_>, chunk: u64) -> rusqlite::Result<Usage> {
    let (kind, _) = inode::split_mode(value::int(row, 1)?);
    let (size, holes) = (value::unsigned(row, 2)?, value::unsigned(row, 3)?);
    let names = value::count(row, 4)?;
    Ok(Usage::of(Ino(value::unsigned(row, 0)?), kind, (size, holes), names, chunk))
}
