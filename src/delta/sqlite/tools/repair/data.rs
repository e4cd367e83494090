//! D1 and D2: repairs chunks with a wrong position or length. The visible content of a file stays
//! the same; hidden content becomes a file of its own.

use rusqlite::types::Value;
use rusqlite::{MAIN_DB, params};

use crate::delta::sqlite::table::chunk::Chunks;
use crate::delta::sqlite::table::inode;
use crate::delta::{Ino, InodeRow, Result, StoreError};

use super::repairer::Repairer;

/// Mode of a regular file that only its owner may read.
const FILE: u32 = 0o100_600;

pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    numbers(mender)?;
    without_file(mender)?;
    too_long(mender)?;
    behind(mender)?;
    lengths(mender)
}

/// D2: chunks without a valid number become files of their own.
fn numbers(mender: &mut Repairer<'_>) -> Result<()> {
    // Also excludes numbers beyond the largest file size.
    let most = i64::MAX.cast_unsigned() / mender.chunk - 1;
    for rowid in mender.numbers(&format!(
        "SELECT rowid FROM fs_data WHERE typeof(chunk_index) <> 'integer'
           OR chunk_index NOT BETWEEN 0 AND {most} ORDER BY rowid"
    ))? {
        let (ino, path) = rescue(mender, rowid, "chunk", 0)?;
        mender.conn.execute("DELETE FROM fs_data WHERE rowid = ?1", [rowid])?;
        mender.mended("D2", format!("a chunk of inode {ino} has no number: it is {path}"));
    }
    Ok(())
}

/// D2: the chunks of an inode that is no regular file become a new file.
fn without_file(mender: &mut Repairer<'_>) -> Result<()> {
    let mut statement = mender.conn.prepare(
        "SELECT DISTINCT d.ino FROM fs_data d LEFT JOIN fs_inode i ON i.ino = d.ino
         WHERE i.mode & 61440 IS NOT 32768 ORDER BY d.ino",
    )?;
    let inos = statement.query_map([], |row| row.get(0))?;
    let inos: Vec<Value> = inos.collect::<rusqlite::Result<_>>()?;
    for ino in inos {
        let new = mender.make(FILE, 0)?;
        mender.conn.execute("UPDATE fs_data SET ino = ?2 WHERE ino = ?1", params![ino, new])?;
        fit(mender, new)?;
        let of = match ino {
            Value::Integer(ino) => ino.to_string(),
            _ => "?".to_owned(),
        };
        let path = mender.attach(new, format!("{of}.data").as_bytes())?;
        mender.mended("D2", format!("inode {of} is no file: its chunks are {path}"));
    }
    Ok(())
}

/// Sets a file's size to the end of its last chunk.
fn fit(mender: &Repairer<'_>, ino: i64) -> Result<()> {
    let chunk = mender.chunk;
    mender.conn.execute(
        &format!(
            "UPDATE fs_inode SET size = (SELECT chunk_index * {chunk}
               + min(octet_length(data), {chunk}) FROM fs_data d WHERE d.ino = fs_inode.ino
               ORDER BY chunk_index DESC LIMIT 1) WHERE ino = ?1"
        ),
        [ino],
    )?;
    Ok(())
}

/// D1: content of a chunk beyond the chunk size is invisible; it becomes a file of its own.
fn too_long(mender: &mut Repairer<'_>) -> Result<()> {
    let chunk = mender.chunk;
    for rowid in mender.numbers(&format!(
        "SELECT rowid FROM fs_data WHERE octet_length(data) > {chunk} ORDER BY rowid"
    ))? {
        let (ino, path) = rescue(mender, rowid, "chunk", chunk)?;
        let head = read(mender, rowid, 0, chunk as usize)?;
        let update = "UPDATE fs_data SET data = ?2 WHERE rowid = ?1";
        mender.conn.execute(update, params![rowid, head])?;
        mender.mended("D1", format!("a chunk of inode {ino} is too long: the rest is {path}"));
    }
    Ok(())
}

/// Content beyond a file's end, without gaps, as a file of its own.
struct LostChunks {
    row: InodeRow,
    /// Offset in the original file where it begins, in bytes.
    begin: u64,
    /// The chunk number that would continue it.
    next: u64,
}

/// D2, D1: content beyond a file's end, except zeros, becomes files of its own.
fn behind(mender: &mut Repairer<'_>) -> Result<()> {
    let chunk = mender.chunk;
    for ino in mender.numbers(&format!(
        "SELECT DISTINCT d.ino FROM fs_data d JOIN fs_inode i ON i.ino = d.ino
         WHERE chunk_index * {chunk} + octet_length(data) > i.size ORDER BY d.ino"
    ))? {
        let query = "SELECT size FROM fs_inode WHERE ino = ?1";
        let size: i64 = mender.conn.query_row(query, [ino], |row| row.get(0))?;
        let (is_beyond, paths) = cut(mender, ino, size.cast_unsigned())?;
        let what = match paths.is_empty() {
            true => format!("zeros past the end of inode {ino} are removed"),
            false => format!("what lies past the end of inode {ino} is {}", paths.join(", ")),
        };
        mender.mended(if is_beyond { "D2" } else { "D1" }, what);
    }
    Ok(())
}

/// Cuts a file's chunks at its size. Returns whether a whole chunk was beyond the end, and the
/// paths of the new files.
fn cut(mender: &mut Repairer<'_>, ino: i64, size: u64) -> Result<(bool, Vec<String>)> {
    let chunk = mender.chunk;
    let (mut is_behind, mut paths) = (false, Vec::new());
    let mut tail: Option<LostChunks> = None;
    for (rowid, index) in rows_from(mender, ino, size / chunk)? {
        let from = size.saturating_sub(index * chunk).min(chunk);
        let data = read(mender, rowid, from, chunk as usize)?;
        if data.iter().any(|byte| *byte != 0) {
            let begin = index * chunk + from;
            if let Some(done) = tail.take_if(|tail| tail.next != index) {
                paths.push(keep(mender, ino, &done)?);
            }
            let tail = match &mut tail {
                Some(tail) => tail,
                None => tail.insert(LostChunks { row: made(mender)?, begin, next: index }),
            };
            let chunks = Chunks::of(mender.conn, tail.row.ino, chunk);
            chunks.write(&mut tail.row, begin - tail.begin, &data)?;
            tail.next = index + 1;
        }
        if index * chunk >= size {
            mender.conn.execute("DELETE FROM fs_data WHERE rowid = ?1", [rowid])?;
            is_behind = true;
        } else if !data.is_empty() {
            let kept = read(mender, rowid, 0, from as usize)?;
            let update = "UPDATE fs_data SET data = ?2 WHERE rowid = ?1";
            mender.conn.execute(update, params![rowid, kept])?;
        }
    }
    if let Some(done) = &tail {
        paths.push(keep(mender, ino, done)?);
    }
    Ok((is_behind, paths))
}

/// Adds an entry for a tail of the file `ino`; returns the path.
fn keep(mender: &mut Repairer<'_>, ino: i64, tail: &LostChunks) -> Result<String> {
    inode::put(mender.conn, &tail.row)?;
    mender.attach(tail.row.ino.0.cast_signed(), format!("{ino}.tail").as_bytes())
}

/// Creates an empty file.
fn made(mender: &mut Repairer<'_>) -> Result<InodeRow> {
    let ino = mender.make(FILE, 0)?;
    let row = inode::get(mender.conn, Ino(ino.cast_unsigned()))?;
    row.ok_or_else(|| StoreError::corrupt(format!("no row for inode {ino}, which was made")))
}

/// The chunks of a file from the number `first` on: rowid and number.
fn rows_from(mender: &Repairer<'_>, ino: i64, first: u64) -> Result<Vec<(i64, u64)>> {
    let mut statement = mender.conn.prepare_cached(
        "SELECT rowid, chunk_index FROM fs_data WHERE ino = ?1 AND chunk_index >= ?2
         ORDER BY chunk_index",
    )?;
    let rows = statement.query_map(params![ino, first.cast_signed()], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// D1: pads short chunks with zeros, which is how they read, and converts chunks to BLOB.
fn lengths(mender: &mut Repairer<'_>) -> Result<()> {
    let chunk = mender.chunk;
    let sql = format!(
        "SELECT d.rowid FROM fs_data d JOIN fs_inode i ON i.ino = d.ino
         WHERE typeof(data) <> 'blob'
           OR octet_length(data) <> min({chunk}, i.size - chunk_index * {chunk})"
    );
    for rowid in mender.numbers(&sql)? {
        let query = format!(
            "SELECT d.ino, chunk_index, min({chunk}, i.size - chunk_index * {chunk})
             FROM fs_data d JOIN fs_inode i ON i.ino = d.ino WHERE d.rowid = ?1"
        );
        let (ino, index, length): (i64, i64, i64) =
            mender
                .conn
                .query_row(&query, [rowid], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let length = usize::try_from(length).unwrap_or_default();
        let mut data = read(mender, rowid, 0, length)?;
        data.resize(length, 0);
        let update = "UPDATE fs_data SET data = ?2 WHERE rowid = ?1";
        mender.conn.execute(update, params![rowid, data])?;
        mender.mended("D1", format!("chunk {index} of inode {ino} gets its length, with zeros"));
    }
    Ok(())
}

/// Makes a file of a chunk's bytes from `from` on; returns the chunk's inode and the new path.
fn rescue(mender: &mut Repairer<'_>, rowid: i64, what: &str, from: u64) -> Result<(i64, String)> {
    let query = "SELECT ino, octet_length(data) FROM fs_data WHERE rowid = ?1";
    let (ino, all): (i64, i64) =
        mender.conn.query_row(query, [rowid], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let all = all.cast_unsigned();
    let new = mender.make(FILE, all - from)?;
    let mut at = from;
    while at < all {
        let piece = read(mender, rowid, at, mender.chunk as usize)?;
        store(mender, new, (at - from) / mender.chunk, &piece)?;
        at += piece.len() as u64;
    }
    let path = mender.attach(new, format!("{ino}.{what}").as_bytes())?;
    Ok((ino, path))
}

/// Up to `length` bytes of a chunk's data from byte `from` on; the data may have any type.
fn read(mender: &Repairer<'_>, rowid: i64, from: u64, length: usize) -> Result<Vec<u8>> {
    let query = "SELECT typeof(data) IN ('blob', 'text') FROM fs_data WHERE rowid = ?1";
    if !mender.conn.query_row(query, [rowid], |row| row.get(0))? {
        // A number: its digits.
        mender.conn.execute(
            "UPDATE fs_data SET data = CAST(CAST(data AS TEXT) AS BLOB) WHERE rowid = ?1",
            [rowid],
        )?;
    }
    let blob = mender.conn.blob_open(MAIN_DB, "fs_data", "data", rowid, true)?;
    let left = (blob.len() as u64).saturating_sub(from);
    let mut data = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
    if !data.is_empty() {
        blob.read_at_exact(&mut data, from as usize)?;
    }
    Ok(data)
}

fn store(mender: &Repairer<'_>, ino: i64, index: u64, data: &[u8]) -> Result<()> {
    let mut insert = mender
        .conn
        .prepare_cached("INSERT INTO fs_data (ino, chunk_index, data) VALUES (?1, ?2, ?3)")?;
    insert.execute(params![ino, index.cast_signed(), data])?;
    Ok(())
}
