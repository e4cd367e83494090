//! `acetate_copy_up`: files whose copy-up is not finished (invariants C1, C2).

use std::ops::Range;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::delta::{CopyUp, Ino, PendingCopies, Result};

use super::value;

/// The columns of the table `u` that [`read`] expects.
macro_rules! columns {
    () => {
        "u.next_byte, u.end_byte"
    };
}
pub(super) use columns;

/// Reads the pending range from a joined row, from column `at` on; `None` if the join found no row.
pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<CopyUp>> {
    if row.get_ref(at)? == ValueRef::Null {
        return Ok(None);
    }
    Ok(Some(CopyUp { next: value::unsigned(row, at)?, end: value::unsigned(row, at + 1)? }))
}

/// Stores a file's pending range; `None` deletes it.
pub fn put(conn: &Connection, ino: Ino, pending: Option<CopyUp>) -> Result<()> {
    let Some(CopyUp { next, end }) = pending else { return delete(conn, ino) };
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO acetate_copy_up (delta_ino, next_byte, end_byte) VALUES (?1, ?2, ?3)
         ON CONFLICT(delta_ino) DO UPDATE SET next_byte = excluded.next_byte,
           end_byte = excluded.end_byte",
    )?;
    statement.execute(params![ino.0.cast_signed(), next.cast_signed(), end.cast_signed()])?;
    Ok(())
}

/// Deletes the row of an inode, if there is one.
pub(super) fn delete(conn: &Connection, ino: Ino) -> Result<()> {
    conn.prepare_cached("DELETE FROM acetate_copy_up WHERE delta_ino = ?1")?
        .execute([ino.0.cast_signed()])?;
    Ok(())
}

/// Takes the stored chunks at both ends out of each pending range, and deletes the ranges in which
/// no chunk is missing: they do not need the base. `chunk` is the chunk size in bytes.
pub fn narrow(conn: &Connection, chunk: u64) -> Result<()> {
    let mut from = Ino(0);
    while let Some(ino) = first_from(conn, from)? {
        from = Ino(ino.0 + 1);
        let Some(pending) = get(conn, ino)? else { continue };
        let all = pending.chunks(chunk);
        let first = all.start + stored_run(conn, ino, &all, "ASC")?;
        if first >= all.end {
            delete(conn, ino)?;
            continue;
        }
        let end = match stored_run(conn, ino, &all, "DESC")? {
            0 => pending.end,
            run => (all.end - run) * chunk,
        };
        let left = CopyUp { next: pending.next.max(first * chunk), end };
        if left != pending {
            put(conn, ino, Some(left))?;
        }
    }
    Ok(())
}

fn get(conn: &Connection, ino: Ino) -> Result<Option<CopyUp>> {
    const SQL: &str =
        concat!("SELECT ", columns!(), " FROM acetate_copy_up u WHERE delta_ino = ?1");
    let mut statement = conn.prepare_cached(SQL)?;
    let found = statement.query_row([ino.0.cast_signed()], |row| read(row, 0));
    Ok(found.optional()?.flatten())
}

/// How many chunks are stored without a gap, from one end of a range on.
fn stored_run(conn: &Connection, ino: Ino, range: &Range<u64>, order: &str) -> Result<u64> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT chunk_index FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2 AND chunk_index < ?3
         ORDER BY chunk_index {order}"
    ))?;
    let key = params![ino.0.cast_signed(), range.start.cast_signed(), range.end.cast_signed()];
    let mut rows = statement.query(key)?;
    let mut run = 0;
    while let Some(row) = rows.next()? {
        let expected = match order {
            "ASC" => range.start + run,
            _ => range.end - 1 - run,
        };
        if value::unsigned(row, 0)? != expected {
            break;
        }
        run += 1;
    }
    Ok(run)
}

/// The first inode at or after `ino` with a pending range.
pub fn first_from(conn: &Connection, ino: Ino) -> Result<Option<Ino>> {
    let mut statement = conn.prepare_cached(
        "SELECT delta_ino FROM acetate_copy_up WHERE delta_ino >= ?1 ORDER BY delta_ino LIMIT 1",
    )?;
    let found = statement.query_row([ino.0.cast_signed()], |row| value::unsigned(row, 0));
    Ok(found.optional()?.map(Ino))
}

/// Totals over all pending ranges.
pub fn total(conn: &Connection) -> Result<PendingCopies> {
    let mut statement = conn.prepare_cached(
        "SELECT count(*), ifnull(sum(end_byte - next_byte), 0) FROM acetate_copy_up",
    )?;
    Ok(statement.query_row([], |row| {
        Ok(PendingCopies { files: value::unsigned(row, 0)?, bytes: value::unsigned(row, 1)? })
    })?)
}

/// The stored chunks of `ino` in a range of chunk numbers, ascending.
pub fn stored(conn: &Connection, ino: Ino, range: &Range<u64>) -> Result<Vec<u64>> {
    let mut statement = conn.prepare_cached(
        "SELECT chunk_index FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2 AND chunk_index < ?3
         ORDER BY chunk_index",
    )?;
    let rows = statement.query_map(
        params![ino.0.cast_signed(), range.start.cast_signed(), range.end.cast_signed()],
        |row| value::unsigned(row, 0),
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first stored chunk of `ino` at or after the number `from`.
pub fn next_stored(conn: &Connection, ino: Ino, from: u64) -> Result<Option<u64>> {
    let mut statement = conn.prepare_cached(
        "SELECT chunk_index FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2
         ORDER BY chunk_index LIMIT 1",
    )?;
    let key = params![ino.0.cast_signed(), from.cast_signed()];
    Ok(statement.query_row(key, |row| value::unsigned(row, 0)).optional()?)
}

/// How many chunks of `ino` in a range of chunk numbers are stored.
pub fn count_stored(conn: &Connection, ino: Ino, range: &Range<u64>) -> Result<u64> {
    let mut statement = conn.prepare_cached(
        "SELECT count(*) FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2 AND chunk_index < ?3",
    )?;
    Ok(statement.query_row(
        params![ino.0.cast_signed(), range.start.cast_signed(), range.end.cast_signed()],
        |row| value::unsigned(row, 0),
    )?)
}
