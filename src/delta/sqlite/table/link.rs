//! `acetate_link`: the number of hidden names of a hard-linked base file.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::Result;
use crate::vfs::{FileId, Time};

use super::value;

/// The number of hidden names of a base file, and when the last one was hidden.
pub fn hidden(conn: &Connection, base: FileId) -> Result<(u32, Option<Time>)> {
    let mut statement = conn
        .prepare_cached("SELECT hidden, ctime, ctime_nsec FROM acetate_link WHERE base_ino = ?1")?;
    let found = statement.query_row([base.0.cast_signed()], |row| {
        Ok((value::count(row, 0)?, Some(value::time(row, 1, 2)?)))
    });
    Ok(found.optional()?.unwrap_or((0, None)))
}

/// Counts one more hidden name (invariant L1).
pub fn hide(conn: &Connection, base: FileId, now: Time) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_link (base_ino, hidden, ctime, ctime_nsec)
         VALUES (?1, 1, ?2, ?3)
         ON CONFLICT(base_ino) DO UPDATE SET hidden = hidden + 1, ctime = excluded.ctime,
           ctime_nsec = excluded.ctime_nsec",
    )?;
    statement.execute(params![base.0.cast_signed(), now.secs, now.nanos])?;
    Ok(())
}

/// The base files that have hidden names.
pub fn files(conn: &Connection) -> Result<Vec<FileId>> {
    let mut statement =
        conn.prepare_cached("SELECT base_ino FROM acetate_link ORDER BY base_ino")?;
    let files = statement.query_map([], |row| value::unsigned(row, 0).map(FileId))?;
    Ok(files.collect::<rusqlite::Result<_>>()?)
}

/// Sets the number of hidden names of a base file; 0 deletes the row.
pub fn count(conn: &Connection, base: FileId, hidden: u32) -> Result<()> {
    let base = base.0.cast_signed();
    if hidden == 0 {
        conn.prepare_cached("DELETE FROM acetate_link WHERE base_ino = ?1")?.execute([base])?;
    } else {
        let update = "UPDATE OR FAIL acetate_link SET hidden = ?2 WHERE base_ino = ?1";
        conn.prepare_cached(update)?.execute(params![base, hidden])?;
    }
    Ok(())
}

/// Replaces all rows: per file, the number of hidden names and when the last one was hidden.
pub fn replace_all(conn: &Connection, links: &[(FileId, (u32, Option<Time>))]) -> Result<()> {
    conn.execute("DELETE FROM acetate_link WHERE 1", [])?;
    let mut statement = conn.prepare(
        "INSERT OR REPLACE INTO acetate_link (base_ino, hidden, ctime, ctime_nsec)
         VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (base, (hidden, since)) in links {
        if let Some(since) = since.filter(|_| *hidden > 0) {
            statement.execute(params![base.0.cast_signed(), hidden, since.secs, since.nanos])?;
        }
    }
    Ok(())
}
