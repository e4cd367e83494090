//! `acetate_old_piece`: pieces of content as they were at checkpoints.
//!
//! A change of part of a chunk saves the pieces that it changes, not the chunk ([`old_rows`]).
//! A whole chunk that a later change saves for the same checkpoint is that chunk with the pieces in
//! it already changed.
//!
//! [`old_rows`]: super::old_rows

use rusqlite::blob::Blob;
use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{CheckpointId, Ino, Result};

use super::incomplete::IS_SAVING;
use super::{old_rows, schema, value};

pub(super) const TABLE: &str = "acetate_old_piece";

/// Size of a piece, in bytes; the last of a chunk may be shorter.
const PIECE_BYTES: usize = 4096;

/// A chunk that is about to change in part.
pub struct ChangedChunk<'a, 'c> {
    /// The file.
    pub ino: i64,
    /// The chunk's number.
    pub index: u64,
    /// The chunk's content.
    pub content: &'a Blob<'c>,
}

pub(super) fn create(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS acetate_old_piece (old_id INTEGER PRIMARY KEY,
           checkpoint INTEGER NOT NULL, ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL,
           piece INTEGER NOT NULL, data BLOB NOT NULL)",
    )?;
    old_rows::index(conn, TABLE, "ino, chunk_index, piece")
}

/// Upper bound of what is saved for a write of `bytes` bytes, in bytes; only a write that moves the
/// end of a file may save more of its last chunk.
pub fn most_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(PIECE_BYTES).saturating_add(PIECE_BYTES)
}

/// Saves the pieces of a chunk from byte `from` to before `to`, unless they or the whole chunk are
/// saved already, for the newest checkpoint at which the file was.
pub fn save(
    conn: &Connection,
    chunk: &ChangedChunk<'_, '_>,
    (from, to): (usize, usize),
) -> Result<()> {
    let mut newest = conn.prepare_cached(&format!(
        "SELECT c.id FROM acetate_checkpoint c WHERE {IS_SAVING} AND c.next_ino > ?1
           AND NOT EXISTS (SELECT 1 FROM acetate_old_fs_data o
             WHERE o.ino = ?1 AND o.chunk_index = ?2 AND o.checkpoint = c.id)"
    ))?;
    let key = params![chunk.ino, chunk.index.cast_signed()];
    let Some(id) = newest.query_row(key, |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    let mut is_saved = conn.prepare_cached(
        "SELECT 1 FROM acetate_old_piece
         WHERE ino = ?1 AND chunk_index = ?2 AND piece = ?3 AND checkpoint = ?4",
    )?;
    let mut save = conn.prepare_cached(
        "INSERT INTO acetate_old_piece (ino, chunk_index, piece, checkpoint, data)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for piece in from / PIECE_BYTES..to.div_ceil(PIECE_BYTES) {
        let key = params![chunk.ino, chunk.index.cast_signed(), piece as i64, id];
        if is_saved.exists(key)? {
            continue;
        }
        let start = piece * PIECE_BYTES;
        let mut data = vec![0; PIECE_BYTES.min(chunk.content.len().saturating_sub(start))];
        chunk.content.read_at_exact(&mut data, start)?;
        save.execute(params![chunk.ino, chunk.index.cast_signed(), piece as i64, id, data])?;
    }
    Ok(())
}

/// Creates the temporary table `whole_chunk` with each chunk that pieces make up at a checkpoint.
/// The table `first_fs_data` says which whole chunks are saved.
pub(super) fn show_at(conn: &Connection, at: (CheckpointId, Ino)) -> Result<()> {
    conn.execute_batch(
        "CREATE TEMP TABLE whole_chunk (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL,
           data BLOB NOT NULL, PRIMARY KEY (ino, chunk_index)) WITHOUT ROWID",
    )?;
    if !schema::has_table(conn, "acetate_old_piece")? {
        return Ok(());
    }
    find_chunks(conn, at)?;
    let mut chunks = conn.prepare("SELECT ino, chunk_index FROM temp.pieced")?;
    let mut rows = chunks.query([])?;
    let mut put = conn.prepare("INSERT INTO temp.whole_chunk VALUES (?1, ?2, ?3)")?;
    while let Some(row) = rows.next()? {
        let (ino, index): (i64, i64) = (row.get(0)?, row.get(1)?);
        if let Some(data) = chunk_then(conn, (ino, index))? {
            put.execute(params![ino, index, data])?;
        }
    }
    Ok(())
}

/// Creates the temporary tables `old_pieces` with the pieces that were saved for a checkpoint or a
/// later one, and `pieced` with the keys of their chunks.
pub(super) fn find_chunks(conn: &Connection, (at, next_ino): (CheckpointId, Ino)) -> Result<()> {
    conn.execute_batch(
        "CREATE TEMP TABLE old_pieces (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL,
           checkpoint INTEGER NOT NULL, old_id INTEGER NOT NULL,
           PRIMARY KEY (ino, chunk_index, checkpoint, old_id)) WITHOUT ROWID;
         CREATE TEMP TABLE pieced (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL,
           PRIMARY KEY (ino, chunk_index)) WITHOUT ROWID",
    )?;
    conn.execute(
        "INSERT INTO temp.old_pieces SELECT ino, chunk_index, checkpoint, old_id
         FROM main.acetate_old_piece WHERE checkpoint >= ?1 AND ino < ?2",
        params![at.0, next_ino.0.cast_signed()],
    )?;
    let chunks = "INSERT INTO temp.pieced SELECT DISTINCT ino, chunk_index FROM temp.old_pieces";
    conn.execute(chunks, [])?;
    Ok(())
}

/// Makes those chunks what they were, one by one, and takes them out of `first_fs_data`: no more of
/// them than one is in memory.
pub(super) fn restore_chunks(conn: &Connection) -> Result<()> {
    let mut keys = conn.prepare("SELECT ino, chunk_index FROM temp.pieced")?;
    let mut rows = keys.query([])?;
    let mut delete =
        conn.prepare("DELETE FROM main.fs_data WHERE ino = ?1 AND chunk_index = ?2")?;
    let mut insert = conn
        .prepare("INSERT OR FAIL INTO main.fs_data (ino, chunk_index, data) VALUES (?1, ?2, ?3)")?;
    let mut done =
        conn.prepare("DELETE FROM temp.first_fs_data WHERE ino = ?1 AND chunk_index = ?2")?;
    while let Some(row) = rows.next()? {
        let (ino, index): (i64, i64) = (row.get(0)?, row.get(1)?);
        let data = chunk_then(conn, (ino, index))?;
        delete.execute(params![ino, index])?;
        if let Some(data) = data {
            insert.execute(params![ino, index, data])?;
        }
        done.execute(params![ino, index])?;
    }
    Ok(())
}

/// The content of a chunk with saved pieces at the checkpoint of the temporary tables; `None` if it
/// was not stored then.
fn chunk_then(conn: &Connection, key: (i64, i64)) -> Result<Option<Vec<u8>>> {
    let (ino, index) = key;
    let mut saved = conn.prepare_cached(
        "SELECT o.checkpoint, o.present, o.data FROM temp.first_fs_data s
         CROSS JOIN main.acetate_old_fs_data o ON o.checkpoint = s.checkpoint
           AND o.ino = s.ino AND o.chunk_index = s.chunk_index
         WHERE s.ino = ?1 AND s.chunk_index = ?2",
    )?;
    let saved = saved
        .query_row(params![ino, index], |row| {
            let data = value::bytes(row, 2)?.to_vec();
            Ok((row.get::<_, i64>(0)?, row.get(1)?, data))
        })
        .optional()?;
    let (until, is_stored, mut data) = match saved {
        Some(saved) => saved,
        None => {
            let mut now = conn.prepare_cached(
                "SELECT data FROM main.fs_data WHERE ino = ?1 AND chunk_index = ?2",
            )?;
            let now = now.query_row(params![ino, index], |row| Ok(value::bytes(row, 0)?.to_vec()));
            let now = now.optional()?;
            (i64::MAX, now.is_some(), now.unwrap_or_default())
        }
    };
    if !is_stored {
        return Ok(None);
    }
    // Newer pieces first: older ones replace them.
    let mut pieces = conn.prepare_cached(
        "SELECT o.piece, o.data FROM temp.old_pieces s
         CROSS JOIN main.acetate_old_piece o ON o.old_id = s.old_id
         WHERE s.ino = ?1 AND s.chunk_index = ?2 AND s.checkpoint <= ?3
         ORDER BY s.checkpoint DESC",
    )?;
    let mut rows = pieces.query(params![ino, index, until])?;
    while let Some(row) = rows.next()? {
        let start = row.get::<_, i64>(0)? as usize * PIECE_BYTES;
        let piece = value::bytes(row, 1)?;
        if let Some(place) = data.get_mut(start..start + piece.len()) {
            place.copy_from_slice(piece);
        }
    }
    Ok(Some(data))
}

pub(super) fn count(conn: &Connection, id: CheckpointId) -> Result<(u64, u64)> {
    let mut count = conn.prepare_cached(
        "SELECT count(*), ifnull(sum(length(data)), 0) FROM acetate_old_piece
         WHERE checkpoint = ?1",
    )?;
    Ok(count.query_row([id.0], |row| Ok((value::unsigned(row, 0)?, value::unsigned(row, 1)?)))?)
}
