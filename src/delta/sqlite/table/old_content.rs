//! Content that is still to be saved for the newest checkpoint, before it goes (invariant K1).
//!
//! A trigger saves each chunk that goes ([`old_rows`]). Much content is saved before, in pieces:
//! as long as a chunk does not change, what is saved early is what the trigger would save.
//!
//! [`old_rows`]: super::old_rows

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Ino, Result, UnsavedContent};

use super::incomplete::IS_SAVING;
use super::value;

/// SQL: the newest checkpoint `c`, if the file `?1` was there.
fn newest_with_file() -> String {
    format!("acetate_checkpoint c WHERE {IS_SAVING} AND c.next_ino > ?1")
}

/// SQL: a chunk `d` of the file `?1` is one from `?2` on that is not saved for the checkpoint `c`.
const IS_UNSAVED: &str = "d.ino = ?1 AND d.chunk_index >= ?2 AND NOT EXISTS
    (SELECT 1 FROM acetate_old_fs_data o WHERE o.ino = d.ino
       AND o.chunk_index = d.chunk_index AND o.checkpoint = c.id)";

/// How much content of a file, from a chunk on, is to be saved, in bytes; `None` if nothing of the
/// file is.
pub fn unsaved_bytes(conn: &Connection, ino: Ino, first: u64) -> Result<Option<u64>> {
    let mut sum = conn.prepare_cached(&format!(
        "SELECT (SELECT ifnull(sum(length(d.data)), 0) FROM fs_data d WHERE {IS_UNSAVED})
         FROM {}",
        newest_with_file()
    ))?;
    let key = params![ino.0.cast_signed(), first.cast_signed()];
    Ok(sum.query_row(key, |row| value::unsigned(row, 0)).optional()?)
}

/// Whether more than `most` chunks of the content are to be saved.
pub fn has_more_unsaved(conn: &Connection, content: UnsavedContent, most: u64) -> Result<bool> {
    let mut more = conn.prepare_cached(&format!(
        "SELECT (SELECT 1 FROM fs_data d WHERE {IS_UNSAVED} LIMIT 1 OFFSET ?3) FROM {}",
        newest_with_file()
    ))?;
    let UnsavedContent { ino, first } = content;
    let key = params![ino.0.cast_signed(), first.cast_signed(), most.cast_signed()];
    let found = more.query_row(key, |row| row.get::<_, Option<i64>>(0)).optional()?;
    Ok(found.flatten().is_some())
}

/// Saves the first `most` chunks of the content that are not saved; returns what is left.
pub fn save(
    conn: &Connection,
    content: UnsavedContent,
    most: u64,
) -> Result<Option<UnsavedContent>> {
    let mut save = conn.prepare_cached(&format!(
        "INSERT OR FAIL INTO acetate_old_fs_data (checkpoint, present, ino, chunk_index, data)
         SELECT c.id, 1, d.ino, d.chunk_index, d.data
         FROM (SELECT c.id FROM {}) c CROSS JOIN fs_data d WHERE {IS_UNSAVED}
         ORDER BY d.chunk_index LIMIT ?3
         RETURNING chunk_index",
        newest_with_file()
    ))?;
    let UnsavedContent { ino, first } = content;
    let key = params![ino.0.cast_signed(), first.cast_signed(), most.cast_signed()];
    let saved: Vec<u64> =
        save.query_map(key, |row| value::unsigned(row, 0))?.collect::<rusqlite::Result<_>>()?;
    let is_all = (saved.len() as u64) < most;
    let last = saved.into_iter().max().filter(|_| !is_all);
    Ok(last.map(|last| UnsavedContent { ino, first: last + 1 }))
}
