//! `fs_data`: a file's content in fixed-size chunks.
//!
//! Invariant D1: a stored chunk i of a file has min(chunk size, size − i × chunk size) bytes.
//! Invariant D2: no chunk is stored at or beyond the size. Invariant D3: a chunk below the size
//! that is not stored reads as zeros; `acetate_inode.holes` counts such chunks.
//!
//! Other implementations break each of these. Reads tolerate that. Writes repair the chunks that
//! they touch, and never expose bytes beyond the old end when a file grows.

use std::borrow::Cow;

use rusqlite::{Connection, MAIN_DB, OptionalExtension, named_params, params};

use crate::delta::{Ino, InodeRow, Result, StoreError};

use super::old_pieces::{self, ChangedChunk};
use super::value;
use crate::delta::sqlite::table::replica::RowNotes;

/// The largest file, in bytes: the maximum of the `size` column.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// One file's chunks.
pub struct Chunks<'c> {
    conn: &'c Connection,
    ino: i64,
    /// Chunk size, in bytes.
    chunk: u64,
    /// Whether no other program can have stored chunks of this file.
    is_ours: bool,
    /// Whether pieces that change in a chunk are saved for a checkpoint.
    saves_pieces: bool,
    /// Takes the rows that SQLite does not report as changed.
    notes: Option<&'c RowNotes>,
}

impl<'c> Chunks<'c> {
    /// The chunks of `ino`, of `chunk` bytes each.
    pub fn of(conn: &'c Connection, ino: Ino, chunk: u64) -> Self {
        Self::to_change(conn, ino, chunk, false)
    }

    /// The chunks of `ino`, to change them. `is_ours` says that no other program can have stored
    /// any, so that none lies beyond the end (invariant D2).
    pub fn to_change(conn: &'c Connection, ino: Ino, chunk: u64, is_ours: bool) -> Self {
        Self { conn, ino: ino.0.cast_signed(), chunk, is_ours, saves_pieces: false, notes: None }
    }

    /// The same, with pieces that change in a chunk saved first if `saves`.
    pub fn saving_pieces(self, saves: bool) -> Self {
        Self { saves_pieces: saves, ..self }
    }

    /// The same, with changed rows noted that SQLite does not report.
    pub fn noting(self, notes: Option<&'c RowNotes>) -> Self {
        Self { notes, ..self }
    }

    /// Fills `buffer` with the content from byte `offset` of a file of `size` bytes.
    pub fn read(&self, size: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buffer.len() as u64).min(size);
        if offset >= end {
            buffer.fill(0);
            return Ok(());
        }
        // For whole chunks as fast as incremental blob reads, and one statement covers all chunks.
        let mut statement = self.conn.prepare_cached(
            "SELECT chunk_index, data FROM fs_data
             WHERE ino = ?1 AND chunk_index BETWEEN ?2 AND ?3 ORDER BY chunk_index",
        )?;
        let (first, last) = (offset / self.chunk, (end - 1) / self.chunk);
        let mut rows =
            statement.query(params![self.ino, first.cast_signed(), last.cast_signed()])?;
        // The buffer is complete up to `filled`; ranges that no chunk covers are holes.
        let mut filled = 0;
        while let Some(row) = rows.next()? {
            let start = value::unsigned(row, 0)? * self.chunk;
            let data = value::bytes(row, 1)?;
            let from = offset.max(start);
            let to = end.min(start + self.chunk.min(data.len() as u64));
            if from < to {
                let target = (from - offset) as usize..(to - offset) as usize;
                let source = (from - start) as usize..(to - start) as usize;
                // Empty if another implementation stored a chunk twice.
                if let Some(hole) = buffer.get_mut(filled..target.start) {
                    hole.fill(0);
                }
                filled = filled.max(target.end);
                buffer[target].copy_from_slice(&data[source]);
            }
        }
        buffer[filled..].fill(0);
        Ok(())
    }

    /// Writes `data` at byte `offset`, and updates the inode's size and holes.
    pub fn write(&self, inode: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let old_bytes = inode.size;
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= MAX_FILE_BYTES)
            .ok_or_else(|| StoreError::full("the file would be too large"))?;
        let first = offset / self.chunk;
        if end > old_bytes {
            self.grow(inode, end, first)?;
        }
        let old_chunks = old_bytes.div_ceil(self.chunk);
        for index in first..end.div_ceil(self.chunk) {
            let start = index * self.chunk;
            let length = self.chunk.min(inode.size - start);
            let from = offset.max(start) - start;
            let to = end.min(start + length) - start;
            let piece = &data[(start + from - offset) as usize..(start + to - offset) as usize];
            let was_hole = if index >= old_chunks {
                self.insert(index, &padded(from, piece, length))?;
                true
            } else if to - from == length {
                self.replace_or_insert(index, piece)?
            } else {
                self.patch(index, from, piece, length, old_bytes.saturating_sub(start))?
            };
            if was_hole {
                inode.holes = inode.holes.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Truncates or extends the file to `size` bytes.
    pub fn truncate(&self, inode: &mut InodeRow, size: u64) -> Result<()> {
        if size > MAX_FILE_BYTES {
            return Err(StoreError::full("the file would be too large"));
        }
        if size > inode.size {
            return self.grow(inode, size, u64::MAX);
        }
        if size == inode.size {
            return Ok(());
        }
        let old_chunks = inode.size.div_ceil(self.chunk);
        let chunks = size.div_ceil(self.chunk);
        // First delete chunks of other implementations beyond the old end: `holes` does not count
        // them.
        self.mend_end(old_chunks)?;
        let stored = self.delete_from(chunks)?;
        inode.holes = inode.holes.saturating_sub((old_chunks - chunks).saturating_sub(stored));
        inode.size = size;
        if !size.is_multiple_of(self.chunk) {
            self.resize(chunks - 1, size % self.chunk, size % self.chunk)?;
        }
        Ok(())
    }

    /// Extends the file with a hole to `size` bytes, also in `inode`. Pads the old last chunk,
    /// unless the caller is going to write it: it writes the chunks from `first` on.
    fn grow(&self, inode: &mut InodeRow, size: u64, first: u64) -> Result<()> {
        let old_bytes = inode.size;
        let old_chunks = old_bytes.div_ceil(self.chunk);
        self.mend_end(old_chunks)?;
        if !old_bytes.is_multiple_of(self.chunk) && old_chunks - 1 < first {
            let start = (old_chunks - 1) * self.chunk;
            self.resize(old_chunks - 1, old_bytes - start, self.chunk.min(size - start))?;
        }
        inode.holes += size.div_ceil(self.chunk) - old_chunks;
        inode.size = size;
        Ok(())
    }

    /// Resizes a stored chunk to `length` bytes; keeps its first `keep` bytes, the rest is zero.
    fn resize(&self, index: u64, keep: u64, length: u64) -> Result<()> {
        let Some((rowid, stored)) = self.find(index)? else { return Ok(()) };
        if stored == Some(length) && keep == length {
            return Ok(());
        }
        let mut data = self.load(rowid)?;
        data.truncate(keep as usize);
        data.resize(length as usize, 0);
        self.store(rowid, &data)
    }

    /// Writes `piece` at `from` into a chunk of `length` bytes; its first `kept` bytes are file
    /// content so far. Returns whether the chunk was a hole.
    fn patch(&self, index: u64, from: u64, piece: &[u8], length: u64, kept: u64) -> Result<bool> {
        let Some((rowid, stored)) = self.find(index)? else {
            self.insert(index, &padded(from, piece, length))?;
            return Ok(true);
        };
        if stored == Some(length) && kept >= length {
            // In place: changes only the pages that hold the piece.
            let mut blob = self.conn.blob_open(MAIN_DB, c"fs_data", c"data", rowid, false)?;
            if self.saves_pieces {
                let chunk = ChangedChunk { ino: self.ino, index, content: &blob };
                old_pieces::save(self.conn, &chunk, (from as usize, from as usize + piece.len()))?;
            }
            blob.write_all_at(piece, from as usize)?;
            blob.close()?;
            self.notes.iter().for_each(|notes| notes.add("fs_data", rowid));
            return Ok(false);
        }
        let mut data = self.load(rowid)?;
        data.truncate(kept as usize);
        data.resize(length as usize, 0);
        data[from as usize..from as usize + piece.len()].copy_from_slice(piece);
        self.store(rowid, &data)?;
        Ok(false)
    }

    /// A chunk's rowid and, if it is a BLOB, its length in bytes.
    fn find(&self, index: u64) -> Result<Option<(i64, Option<u64>)>> {
        let mut statement = self.conn.prepare_cached(
            "SELECT rowid, iif(typeof(data) = 'blob', length(data), NULL) FROM fs_data
             WHERE ino = ?1 AND chunk_index = ?2",
        )?;
        let found = statement.query_row(params![self.ino, index.cast_signed()], |row| {
            Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned)))
        });
        Ok(found.optional()?)
    }

    fn load(&self, rowid: i64) -> Result<Vec<u8>> {
        let mut statement =
            self.conn.prepare_cached("SELECT data FROM fs_data WHERE rowid = ?1")?;
        Ok(statement.query_row([rowid], |row| value::bytes(row, 0).map(<[u8]>::to_vec))?)
    }

    fn store(&self, rowid: i64, data: &[u8]) -> Result<()> {
        let mut statement =
            self.conn.prepare_cached("UPDATE OR FAIL fs_data SET data = ?2 WHERE rowid = ?1")?;
        statement.execute(params![rowid, data])?;
        Ok(())
    }

    /// Stores a whole chunk; returns whether it was a hole.
    fn replace_or_insert(&self, index: u64, data: &[u8]) -> Result<bool> {
        let mut statement = self.conn.prepare_cached(
            "UPDATE OR FAIL fs_data SET data = ?3 WHERE ino = ?1 AND chunk_index = ?2",
        )?;
        if statement.execute(params![self.ino, index.cast_signed(), data])? > 0 {
            return Ok(false);
        }
        self.insert(index, data)?;
        Ok(true)
    }

    fn insert(&self, index: u64, data: &[u8]) -> Result<()> {
        let mut statement = self.conn.prepare_cached(
            "INSERT OR FAIL INTO fs_data (ino, chunk_index, data) VALUES (?1, ?2, ?3)",
        )?;
        statement.execute(params![self.ino, index.cast_signed(), data])?;
        Ok(())
    }

    /// Deletes chunks that other programs left at or beyond the chunk `end`.
    fn mend_end(&self, end: u64) -> Result<()> {
        if !self.is_ours {
            self.delete_from(end)?;
        }
        Ok(())
    }

    /// Deletes the chunks from `index` on; returns how many.
    fn delete_from(&self, index: u64) -> Result<u64> {
        let mut statement =
            self.conn.prepare_cached("DELETE FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2")?;
        Ok(statement.execute(params![self.ino, index.cast_signed()])? as u64)
    }
}

/// Recounts the holes of every file (invariants D3 and C2), with chunks of `chunk` bytes, because
/// other implementations do not maintain them. Returns how many counts were wrong.
pub fn recount_holes(conn: &Connection, chunk: u64) -> Result<usize> {
    let mut count = conn.prepare(
        "WITH counted AS (
           SELECT i.ino, i.size / :chunk + (i.size % :chunk > 0)
             - (SELECT count(*) FROM fs_data d WHERE d.ino = i.ino AND chunk_index >= 0
                  AND chunk_index * :chunk < i.size)
             - ifnull((u.end_byte + :chunk - 1) / :chunk - u.next_byte / :chunk
                 - (SELECT count(*) FROM fs_data d WHERE d.ino = i.ino
                      AND chunk_index >= u.next_byte / :chunk
                      AND chunk_index < (u.end_byte + :chunk - 1) / :chunk), 0) AS holes
           FROM fs_inode i LEFT JOIN acetate_copy_up u ON u.delta_ino = i.ino
           WHERE i.mode & 61440 = 32768 AND i.size >= 0)
         INSERT OR FAIL INTO acetate_inode (ino, holes)
         SELECT c.ino, max(c.holes, 0) FROM counted c LEFT JOIN acetate_inode a ON a.ino = c.ino
         WHERE ifnull(a.holes, 0) IS NOT max(c.holes, 0)
         ON CONFLICT(ino) DO UPDATE SET holes = excluded.holes",
    )?;
    let wrong = count.execute(named_params! { ":chunk": chunk.cast_signed() })?;
    conn.execute_batch(
        "DELETE FROM acetate_inode
         WHERE subdirs IS NULL AND holes = 0 AND create_verifier IS NULL",
    )?;
    Ok(wrong)
}

/// `piece` at `from` in a chunk of `length` bytes that is zero elsewhere.
fn padded(from: u64, piece: &[u8], length: u64) -> Cow<'_, [u8]> {
    if piece.len() as u64 == length {
        return piece.into();
    }
    let mut data = vec![0; length as usize];
    data[from as usize..from as usize + piece.len()].copy_from_slice(piece);
    data.into()
}

/// SQL: the number of chunks below the size of a regular file `i`; `?2` is the chunk size.
pub const WANTED_CHUNKS: &str = "(i.size / ?2 + (i.size % ?2 > 0))";
/// SQL: the number of those chunks that are stored.
pub const STORED_CHUNKS: &str =
    "(SELECT count(*) FROM fs_data d WHERE d.ino = i.ino AND d.chunk_index >= 0
    AND d.chunk_index < i.size / ?2 + (i.size % ?2 > 0))";

/// The first regular file at or after `from` that lacks a chunk.
pub fn first_sparse_file(conn: &Connection, from: Ino, chunk: u64) -> Result<Option<Ino>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT i.ino FROM fs_inode i WHERE i.ino >= ?1 AND i.mode & 61440 = 32768 AND i.size > 0
           AND {STORED_CHUNKS} < {WANTED_CHUNKS} ORDER BY i.ino LIMIT 1"
    ))?;
    let key = params![from.0.cast_signed(), chunk.cast_signed()];
    Ok(statement.query_row(key, |row| value::unsigned(row, 0)).optional()?.map(Ino))
}
