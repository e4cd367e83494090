//! Converts file content of version 0.0 of the specification, where chunks have any length and
//! offset, to chunks of one length. No byte is lost.
//!
//! A file is "all chunks in order of their offset, one behind the other" (specification 0.0,
//! "Reading a File"), and its size is their total length (consistency rule 7). If the size is
//! larger and the chunks do not overlap, the writer used holes: then each chunk is placed at its
//! offset. A chunk can be as large as SQLite permits, and is never read into memory as a whole.

use rusqlite::types::Value;
use rusqlite::{Connection, MAIN_DB, OptionalExtension, params};

use crate::delta::Result;
use crate::delta::sqlite::table::value;

/// Bytes copied at once.
const PIECE_BYTES: u64 = 64 << 10;

/// Counts over all chunks of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Survey {
    /// Chunks.
    pub chunks: u64,
    /// Files whose size differs from that of their chunks.
    pub resized: u64,
}

/// The chunks of one inode, in summary.
struct ChunkLayout {
    chunks: u64,
    /// The size of the file that they form, in bytes.
    size: u64,
    /// Whether they are placed at their offsets, with holes between them.
    is_sparse: bool,
    /// Whether this size differs from the recorded one.
    is_resized: bool,
}

/// A chunk in the old form.
struct OldChunk {
    rowid: i64,
    offset: i64,
    bytes: u64,
}

/// Counts the chunks of `table`.
pub(super) fn survey(conn: &Connection, table: &str) -> Result<Survey> {
    let mut survey = Survey::default();
    for ino in inodes(conn, table)? {
        let layout = ChunkLayout::read(conn, table, &ino)?;
        survey.chunks += layout.chunks;
        survey.resized += u64::from(layout.is_resized);
    }
    Ok(survey)
}

/// Writes the chunks of `old` to `fs_data`, cut to `chunk_bytes`, and updates the sizes.
pub(super) fn cut(conn: &Connection, old: &str, chunk_bytes: u64) -> Result<()> {
    for ino in inodes(conn, old)? {
        let layout = ChunkLayout::read(conn, old, &ino)?;
        let mut cutter = Cutter::new(conn, &ino, chunk_bytes, layout.size);
        let mut at = 0;
        each_chunk(conn, old, &ino, |chunk| {
            if layout.is_sparse {
                at = chunk.offset.cast_unsigned();
            }
            copy(conn, old, chunk, at, &mut cutter)?;
            at += chunk.bytes;
            Ok(())
        })?;
        cutter.store()?;
        if layout.is_resized {
            let mut update = conn.prepare_cached("UPDATE fs_inode SET size = ?2 WHERE ino = ?1")?;
            update.execute(params![ino, layout.size.cast_signed()])?;
        }
    }
    Ok(())
}

/// The inodes that have chunks.
fn inodes(conn: &Connection, table: &str) -> Result<Vec<Value>> {
    let mut statement = conn.prepare(&format!("SELECT DISTINCT ino FROM {table} ORDER BY ino"))?;
    let inos = statement.query_map([], |row| row.get(0))?;
    Ok(inos.collect::<rusqlite::Result<_>>()?)
}

/// Calls `each` for the chunks of an inode, in order.
fn each_chunk(
    conn: &Connection,
    table: &str,
    ino: &Value,
    mut each: impl FnMut(&OldChunk) -> Result<()>,
) -> Result<()> {
    let mut statement = conn.prepare(&format!(
        "SELECT rowid, offset, octet_length(data) FROM {table} WHERE ino = ?1
         ORDER BY offset, rowid"
    ))?;
    let mut rows = statement.query([ino])?;
    while let Some(row) = rows.next()? {
        let (rowid, offset) = (row.get(0)?, value::int(row, 1)?);
        each(&OldChunk { rowid, offset, bytes: value::unsigned(row, 2)? })?;
    }
    Ok(())
}

impl ChunkLayout {
    fn read(conn: &Connection, table: &str, ino: &Value) -> Result<Self> {
        let (mut chunks, mut total) = (0, 0);
        // End of the last chunk; `None` once a chunk overlaps another or has an invalid offset.
        let mut end = Some(0);
        each_chunk(conn, table, ino, |chunk| {
            chunks += 1;
            total += chunk.bytes;
            let begin = u64::try_from(chunk.offset).ok();
            let is_behind = begin.zip(end).is_some_and(|(begin, end)| begin >= end);
            end = begin.filter(|_| is_behind).and_then(|begin| begin.checked_add(chunk.bytes));
            Ok(())
        })?;
        let mut statement = conn
            .prepare_cached("SELECT size FROM fs_inode WHERE ino = ?1 AND mode & 61440 = 32768")?;
        let stored = statement.query_row([ino], |row| value::int(row, 0)).optional()?;
        let size = stored.and_then(|size| u64::try_from(size).ok());
        let sparse = size.filter(|size| total < *size && end.is_some_and(|end| end <= *size));
        Ok(Self {
            chunks,
            size: sparse.unwrap_or(total),
            is_sparse: sparse.is_some(),
            is_resized: stored.is_some() && sparse.is_none() && size != Some(total),
        })
    }
}

/// Copies a chunk's content to byte `at` of the file.
fn copy(
    conn: &Connection,
    old: &str,
    chunk: &OldChunk,
    at: u64,
    cutter: &mut Cutter<'_>,
) -> Result<()> {
    let mut statement =
        conn.prepare_cached(&format!("SELECT typeof(data) FROM {old} WHERE rowid = ?1"))?;
    let kind: String = statement.query_row([chunk.rowid], |row| row.get(0))?;
    if kind != "blob" && kind != "text" {
        // A number: its digits, which is its value as text.
        let query = format!("SELECT CAST(CAST(data AS TEXT) AS BLOB) FROM {old} WHERE rowid = ?1");
        let data: Vec<u8> = conn.query_row(&query, [chunk.rowid], |row| row.get(0))?;
        return cutter.put(at, &data);
    }
    let blob = conn.blob_open(MAIN_DB, old, "data", chunk.rowid, true)?;
    let mut piece = vec![0; chunk.bytes.min(PIECE_BYTES) as usize];
    let mut done = 0;
    while done < chunk.bytes {
        let length = (chunk.bytes - done).min(PIECE_BYTES) as usize;
        blob.read_at_exact(&mut piece[..length], done as usize)?;
        cutter.put(at + done, &piece[..length])?;
        done += length as u64;
    }
    Ok(())
}

/// Cuts data that arrives in ascending order into chunks.
struct Cutter<'c> {
    conn: &'c Connection,
    ino: &'c Value,
    chunk_bytes: u64,
    /// The file's size, in bytes.
    size: u64,
    /// The number of the chunk that is being filled.
    index: u64,
    data: Vec<u8>,
}

impl<'c> Cutter<'c> {
    fn new(conn: &'c Connection, ino: &'c Value, chunk_bytes: u64, size: u64) -> Self {
        Self { conn, ino, chunk_bytes, size, index: 0, data: Vec::new() }
    }

    fn put(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let index = at / self.chunk_bytes;
            if index != self.index {
                self.store()?;
                self.index = index;
            }
            let from = (at % self.chunk_bytes) as usize;
            let length = bytes.len().min(self.chunk_bytes as usize - from);
            // Bytes that no old chunk covers are zeros.
            self.data.resize(from, 0);
            self.data.extend_from_slice(&bytes[..length]);
            at += length as u64;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    /// Stores the current chunk at its proper length (invariant D1).
    fn store(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let length = self.chunk_bytes.min(self.size - self.index * self.chunk_bytes);
        self.data.resize(length as usize, 0);
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO fs_data (ino, chunk_index, data) VALUES (?1, ?2, ?3)")?;
        insert.execute(params![self.ino, self.index.cast_signed(), self.data])?;
        self.data.clear();
        Ok(())
    }
}
