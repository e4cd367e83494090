//! `fs_whiteout`: hidden base paths.
//!
//! A path is TEXT if it is UTF-8, otherwise BLOB, so a subtree is two ranges of the key. An empty
//! `parent_path` comes from an implementation without that column; the parent is then derived from
//! the path.

use rusqlite::{Connection, params};

use crate::delta::{MergedPath, Result, StoreError, Whiteouts};
use crate::vfs::{Name, Time};

use super::value::{self, Bytes};

/// Rows read into memory at once while a subtree's whiteouts move.
const MOVE_ROWS: usize = 1024;

/// Whether exactly this path is whited out.
pub fn exists(conn: &Connection, path: &MergedPath) -> Result<bool> {
    let mut statement = conn.prepare_cached("SELECT 1 FROM fs_whiteout WHERE path = ?1")?;
    for key in value::keys(path.as_bytes()) {
        if statement.exists([key])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// When exactly this path was whited out, in seconds since 1970.
pub fn created_at(conn: &Connection, path: &MergedPath) -> Result<Option<i64>> {
    let mut statement =
        conn.prepare_cached("SELECT created_at FROM fs_whiteout WHERE path = ?1")?;
    for key in value::keys(path.as_bytes()) {
        if let Some(row) = statement.query([key])?.next()? {
            return Ok(Some(value::int(row, 0)?));
        }
    }
    Ok(None)
}

/// The names whited out directly below `parent`.
pub fn list(conn: &Connection, parent: &MergedPath) -> Result<Vec<Name>> {
    let mut statement = conn.prepare_cached(
        "SELECT path FROM fs_whiteout WHERE parent_path IN (?1, CAST(?1 AS BLOB), '')",
    )?;
    let mut rows = statement.query([Bytes(parent.as_bytes())])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(path) = MergedPath::from_bytes(value::bytes(row, 0)?) else { continue };
        if path.parent() == *parent {
            names.extend(path.name());
        }
    }
    Ok(names)
}

/// Whether any name may be whited out directly below `parent`.
pub fn any(conn: &Connection, parent: &MergedPath) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "SELECT 1 FROM fs_whiteout WHERE parent_path IN (?1, CAST(?1 AS BLOB), '')",
    )?;
    Ok(statement.exists([Bytes(parent.as_bytes())])?)
}

/// How many names are whited out directly below `parent`, counting up to `most`. An upper bound:
/// rows with an empty `parent_path` are included.
pub fn count(conn: &Connection, parent: &MergedPath, most: usize) -> Result<usize> {
    let mut statement = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM fs_whiteout
         WHERE parent_path IN (?1, CAST(?1 AS BLOB), '') LIMIT ?2)",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let found = statement
        .query_row(params![Bytes(parent.as_bytes()), most], |row| value::unsigned(row, 0))?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// The directories in which a name is whited out; a directory may occur several times.
pub fn parents(conn: &Connection) -> Result<Vec<MergedPath>> {
    let mut parents = Vec::new();
    let mut known = conn
        .prepare_cached("SELECT DISTINCT parent_path FROM fs_whiteout WHERE parent_path <> ''")?;
    let mut rows = known.query([])?;
    while let Some(row) = rows.next()? {
        parents.extend(MergedPath::from_bytes(value::bytes(row, 0)?));
    }
    let mut derived = conn.prepare_cached("SELECT path FROM fs_whiteout WHERE parent_path = ''")?;
    let mut rows = derived.query([])?;
    while let Some(row) = rows.next()? {
        parents.extend(MergedPath::from_bytes(value::bytes(row, 0)?).map(|path| path.parent()));
    }
    Ok(parents)
}

/// Adds a whiteout (specification 0.4, "Create Whiteout"); returns whether it is new.
pub fn add(conn: &Connection, path: &MergedPath, now: Time) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO fs_whiteout (path, parent_path, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT(path) DO NOTHING",
    )?;
    let parent = path.parent();
    let row = params![Bytes(path.as_bytes()), Bytes(parent.as_bytes()), now.secs];
    let is_new = statement.execute(row)? > 0;
    if !is_new {
        put(conn, path, now.secs)?;
    }
    Ok(is_new)
}

fn put(conn: &Connection, path: &MergedPath, created_at: i64) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "INSERT OR FAIL INTO fs_whiteout (path, parent_path, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT(path) DO UPDATE SET parent_path = excluded.parent_path,
           created_at = excluded.created_at",
    )?;
    let parent = path.parent();
    statement.execute(params![Bytes(path.as_bytes()), Bytes(parent.as_bytes()), created_at])?;
    Ok(())
}

/// Removes exactly this whiteout; returns its time, in seconds since 1970, if there was one.
pub fn remove(conn: &Connection, path: &MergedPath) -> Result<Option<i64>> {
    let mut statement =
        conn.prepare_cached("DELETE FROM fs_whiteout WHERE path = ?1 RETURNING created_at")?;
    let mut created_at = None;
    for key in value::keys(path.as_bytes()) {
        let removed = statement.query_map([key], |row| value::int(row, 0))?;
        for removed in removed {
            created_at = Some(removed?);
        }
    }
    Ok(created_at)
}

/// Exclusive bounds of the paths below a path: `path/` and `path0` (`0` follows `/`).
fn range_below(path: &MergedPath) -> (Vec<u8>, Vec<u8>) {
    let mut from = path.as_bytes().to_vec();
    if from != b"/" {
        from.push(b'/');
    }
    let mut to = from.clone();
    if let Some(last) = to.last_mut() {
        *last = b'/' + 1;
    }
    (from, to)
}

/// Counts the whiteouts below a path; `most` limits the count per type of key. Reads no overflow
/// pages: SQLite takes a path's length from the row's header.
pub fn below(conn: &Connection, path: &MergedPath, most: Option<u32>) -> Result<Whiteouts> {
    let (from, to) = range_below(path);
    let mut statement = conn.prepare_cached(
        "SELECT count(*), ifnull(sum(bytes), 0), ifnull(max(bytes), 0),
           ifnull(sum((bytes + 255) / 256), 0)
         FROM (SELECT octet_length(path) AS bytes FROM fs_whiteout
               WHERE path > ?1 AND path < ?2 LIMIT ?3)",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Whiteouts {
            rows: value::unsigned(row, 0)?,
            bytes: value::unsigned(row, 1)?,
            longest: value::unsigned(row, 2)?,
            files: value::unsigned(row, 3)?,
        })
    };
    let limit = most.map_or(-1, i64::from);
    let mut sum = statement.query_row(params![from, to, limit], read)?;
    if std::str::from_utf8(&from).is_ok() {
        let texts = statement.query_row(params![Bytes(&from), Bytes(&to), limit], read)?;
        sum.rows += texts.rows;
        sum.bytes += texts.bytes;
        sum.longest = sum.longest.max(texts.longest);
        sum.files += texts.files;
    }
    Ok(sum)
}

/// Removes all whiteouts below a path.
pub fn remove_below(conn: &Connection, path: &MergedPath) -> Result<()> {
    let (from, to) = range_below(path);
    let mut statement =
        conn.prepare_cached("DELETE FROM fs_whiteout WHERE path > ?1 AND path < ?2")?;
    if std::str::from_utf8(&from).is_ok() {
        statement.execute(params![Bytes(&from), Bytes(&to)])?;
    }
    statement.execute(params![from, to])?;
    Ok(())
}

/// Moves all whiteouts below `from` to below `to`.
pub fn move_below(conn: &Connection, from: &MergedPath, to: &MergedPath) -> Result<()> {
    let (start, end) = range_below(from);
    if to == from || to.as_bytes().starts_with(&start) {
        // Would never end; no rename may cause this (RFC 1813 §3.3.14).
        return Err(StoreError::corrupt(format!("whiteouts of {from:?} moved into {to:?}")));
    }
    loop {
        let moved = some_below(conn, &start, &end)?;
        if moved.is_empty() {
            return Ok(());
        }
        for (bytes, created_at) in moved {
            let mut delete = conn
                .prepare_cached("DELETE FROM fs_whiteout WHERE path IN (?1, CAST(?1 AS BLOB))")?;
            delete.execute([Bytes(&bytes)])?;
            let mut target = range_below(to).0;
            target.extend_from_slice(&bytes[start.len()..]);
            // An invalid path hides nothing; it is dropped.
            if let Some(target) = MergedPath::from_bytes(&target) {
                put(conn, &target, created_at)?;
            }
        }
    }
}

/// Up to [`MOVE_ROWS`] whiteouts of a range, TEXT keys first, then BLOB keys.
fn some_below(conn: &Connection, start: &[u8], end: &[u8]) -> Result<Vec<(Vec<u8>, i64)>> {
    let mut statement = conn.prepare_cached(
        "SELECT path, created_at FROM fs_whiteout WHERE path > ?1 AND path < ?2 LIMIT ?3",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((value::bytes(row, 0)?.to_vec(), value::int(row, 1)?));
    let limit = MOVE_ROWS as i64;
    let mut found = Vec::new();
    if std::str::from_utf8(start).is_ok() {
        for row in statement.query_map(params![Bytes(start), Bytes(end), limit], read)? {
            found.push(row?);
        }
    }
    if found.is_empty() {
        for row in statement.query_map(params![start, end, limit], read)? {
            found.push(row?);
        }
    }
    Ok(found)
}

/// Fills in each `parent_path` that another implementation left empty (invariant W2).
pub(super) fn derive_parents(conn: &Connection) -> Result<()> {
    let mut select = conn.prepare("SELECT path FROM fs_whiteout WHERE parent_path = ''")?;
    let paths = select.query_map([], |row| value::bytes(row, 0).map(MergedPath::from_bytes))?;
    let paths: Vec<_> = paths.collect::<rusqlite::Result<_>>()?;
    let mut update = conn.prepare(
        "UPDATE OR FAIL fs_whiteout SET parent_path = ?2 WHERE path IN (?1, CAST(?1 AS BLOB))",
    )?;
    for path in paths.into_iter().flatten() {
        let parent = path.parent();
        update.execute(params![Bytes(path.as_bytes()), Bytes(parent.as_bytes())])?;
    }
    Ok(())
}
