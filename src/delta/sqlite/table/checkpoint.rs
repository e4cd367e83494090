//! `acetate_checkpoint`: moments whose tree the session can still show.
//!
//! The table and those of the old rows exist from the first checkpoint on.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::delta::{
    Checkpoint, CheckpointId, CheckpointKind, Ino, MadeCheckpoint, NewCheckpoint, Result, surplus,
};
use crate::vfs::Time;

use super::removed_checkpoints::{self, REMOVED};
use super::{checkpoint_keep, checkpoint_space, incomplete, meta, old_rows, schema, value};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS acetate_checkpoint (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT UNIQUE,
  kind TEXT NOT NULL,
  time INTEGER NOT NULL,
  time_nsec INTEGER NOT NULL,
  labels TEXT NOT NULL,
  last_op INTEGER NOT NULL,
  next_ino INTEGER NOT NULL,
  saved_rows INTEGER,
  saved_bytes INTEGER,
  incomplete TEXT
)";

const COLUMNS: &str =
    "id, name, kind, time, time_nsec, labels, last_op, next_ino, saved_rows, saved_bytes";

/// The columns, as far as the table has them: earlier versions lack the last one.
fn columns(conn: &Connection) -> Result<String> {
    let last = if incomplete::has_column(conn)? { "incomplete" } else { "NULL" };
    Ok(format!("{COLUMNS}, {last}"))
}

/// Whether the session has, or had, a checkpoint.
pub fn is_used(conn: &Connection) -> Result<bool> {
    schema::has_table(conn, "acetate_checkpoint")
}

/// Whether the session has a checkpoint.
pub fn any(conn: &Connection) -> Result<bool> {
    let any = "SELECT 1 FROM acetate_checkpoint WHERE kind <> ?1";
    Ok(is_used(conn)? && conn.prepare(any)?.exists([REMOVED])?)
}

/// Whether a checkpoint has this name.
pub fn has_name(conn: &Connection, name: Option<&str>) -> Result<bool> {
    let mut named = conn.prepare_cached("SELECT 1 FROM acetate_checkpoint WHERE name = ?1")?;
    Ok(name.is_some() && named.exists([name])?)
}

/// Creates the tables, if they are missing, in the caller's transaction.
pub fn create_tables(conn: &Connection) -> Result<()> {
    conn.execute_batch(TABLE)?;
    incomplete::add_column(conn)?;
    old_rows::create(conn)
}

/// Adds a checkpoint. `next_ino` is the number of the next object.
pub fn insert(conn: &Connection, new: &NewCheckpoint, next_ino: Ino) -> Result<Checkpoint> {
    // A checkpoint of an earlier version did not require it.
    meta::require_format(conn, meta::CHECKPOINT_FORMAT)?;
    count_newest(conn)?;
    let last = "SELECT ifnull(max(id), 0) FROM acetate_op";
    let last_op: i64 = conn.prepare_cached(last)?.query_row([], |row| row.get(0))?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO acetate_checkpoint (name, kind, time, time_nsec, labels, last_op, next_ino)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let labels = serde_json::to_string(&new.labels).unwrap_or_default();
    let id = insert.insert(params![
        new.name,
        new.kind.as_str(),
        new.time.secs,
        new.time.nanos,
        labels,
        last_op,
        next_ino.0.cast_signed(),
    ])?;
    let NewCheckpoint { name, kind, labels, time, reuses: _, needed: _ } = new.clone();
    let id = CheckpointId(id);
    let (saved, incomplete) = (None, None);
    Ok(Checkpoint { id, name, kind, time, labels, last_op, next_ino, saved, incomplete })
}

/// Whether rows of the log after `last_op` were deleted.
pub fn is_cut(conn: &Connection, last_op: i64) -> Result<bool> {
    let first = "SELECT ifnull(min(id), 0) > ?1 + 1 FROM acetate_op";
    Ok(conn.prepare_cached(first)?.query_row([last_op], |row| row.get(0))?)
}

/// Whether a row after `seen` changed anything.
pub fn is_changed_since(conn: &Connection, seen: i64) -> Result<bool> {
    let later = "SELECT 1 FROM acetate_op WHERE id > ?1 AND procedure <> 'REFUSE'";
    Ok(schema::has_table(conn, "acetate_op")? && conn.prepare_cached(later)?.exists([seen])?)
}

/// The newest checkpoint, if it is complete, and nothing changed since. Without a log, it is not
/// known whether anything changed.
pub fn unchanged(conn: &Connection) -> Result<Option<Checkpoint>> {
    if !schema::has_table(conn, "acetate_op")? {
        return Ok(None);
    }
    let Some(newest) = newest(conn)?.filter(|newest| newest.incomplete.is_none()) else {
        return Ok(None);
    };
    let is_changed = is_changed_since(conn, newest.last_op)? || is_cut(conn, newest.last_op)?;
    Ok((!is_changed).then_some(newest))
}

/// Uses the newest checkpoint instead of a new one. Its labels then tell of the step that begins
/// now: those of a step before, which changed nothing, go. What a user made keeps its labels.
pub fn reuse(conn: &Connection, newest: Checkpoint, new: &NewCheckpoint) -> Result<MadeCheckpoint> {
    let mut labels = match newest.kind == new.kind {
        true => BTreeMap::new(),
        false => newest.labels.clone(),
    };
    labels.extend(new.labels.clone());
    if newest.kind == CheckpointKind::Manual || labels == newest.labels {
        return Ok(MadeCheckpoint::Reused(newest));
    }
    let text = serde_json::to_string(&labels).unwrap_or_default();
    conn.prepare_cached("UPDATE acetate_checkpoint SET labels = ?2 WHERE id = ?1")?
        .execute(params![newest.id.0, text])?;
    Ok(MadeCheckpoint::Reused(Checkpoint { labels, ..newest }))
}

/// Marks the automatic checkpoints that are not kept as removed, but not `needed`, nor those of the
/// last restore.
pub fn remove_surplus(conn: &Connection, now: Time, needed: Option<CheckpointId>) -> Result<()> {
    let mut surplus = surplus(&all(conn)?, now, checkpoint_keep::get(conn)?);
    let restored = checkpoint_space::of_last_restore(conn)?;
    surplus.retain(|id| Some(*id) != needed && !restored.contains(&Some(*id)));
    surplus.into_iter().try_for_each(|id| removed_checkpoints::mark(conn, id).map(drop))
}

/// Counts the rows of the newest checkpoint: no more are saved for it.
fn count_newest(conn: &Connection) -> Result<()> {
    let newest = "SELECT max(id) FROM acetate_checkpoint";
    let newest: Option<i64> = conn.prepare_cached(newest)?.query_row([], |row| row.get(0))?;
    match newest {
        Some(id) => store_count(conn, CheckpointId(id)),
        None => Ok(()),
    }
}

fn store_count(conn: &Connection, id: CheckpointId) -> Result<()> {
    let (rows, bytes) = old_rows::count(conn, id)?;
    let mut update = conn.prepare_cached(
        "UPDATE acetate_checkpoint SET saved_rows = ?2, saved_bytes = ?3 WHERE id = ?1",
    )?;
    update.execute(params![id.0, rows.cast_signed(), bytes.cast_signed()])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    let kind = CheckpointKind::from_name(row.get_ref(2)?.as_str().unwrap_or_default());
    let labels = value::bytes(row, 5)?;
    let labels: BTreeMap<_, _> = serde_json::from_slice(labels).unwrap_or_default();
    let saved = match row.get::<_, Option<i64>>(8)? {
        Some(rows) => Some((rows.cast_unsigned(), value::unsigned(row, 9)?)),
        None => None,
    };
    Ok(Checkpoint {
        id: CheckpointId(row.get(0)?),
        name: row.get(1)?,
        kind: kind.unwrap_or(CheckpointKind::Manual),
        time: value::time(row, 3, 4)?,
        labels,
        last_op: row.get(6)?,
        next_ino: Ino(value::unsigned(row, 7)?),
        saved,
        incomplete: incomplete::read(row.get_ref(10)?),
    })
}

/// All checkpoints, the oldest first.
pub fn all(conn: &Connection) -> Result<Vec<Checkpoint>> {
    if !is_used(conn)? {
        return Ok(Vec::new());
    }
    let columns = columns(conn)?;
    let sql = format!("SELECT {columns} FROM acetate_checkpoint WHERE kind <> ?1 ORDER BY id");
    let mut statement = conn.prepare_cached(&sql)?;
    let all = statement.query_map([REMOVED], read)?;
    Ok(all.collect::<rusqlite::Result<_>>()?)
}

/// The newest checkpoint.
fn newest(conn: &Connection) -> Result<Option<Checkpoint>> {
    if !is_used(conn)? {
        return Ok(None);
    }
    let columns = columns(conn)?;
    let sql = format!(
        "SELECT {columns} FROM acetate_checkpoint WHERE kind <> ?1 ORDER BY id DESC LIMIT 1"
    );
    Ok(conn.prepare_cached(&sql)?.query_row([REMOVED], read).optional()?)
}

/// A checkpoint.
pub fn get(conn: &Connection, id: CheckpointId) -> Result<Option<Checkpoint>> {
    if !is_used(conn)? {
        return Ok(None);
    }
    let columns = columns(conn)?;
    let sql = format!("SELECT {columns} FROM acetate_checkpoint WHERE id = ?1 AND kind <> ?2");
    Ok(conn.prepare_cached(&sql)?.query_row(params![id.0, REMOVED], read).optional()?)
}

/// Makes a checkpoint one of the kind `fork`, which nothing removes unasked; returns whether it was
/// there.
pub fn keep(conn: &Connection, id: CheckpointId) -> Result<bool> {
    let Some(found) = get(conn, id)? else { return Ok(false) };
    if found.kind != CheckpointKind::Fork {
        let mut keep =
            conn.prepare_cached("UPDATE acetate_checkpoint SET kind = ?2 WHERE id = ?1")?;
        keep.execute(params![id.0, CheckpointKind::Fork.as_str()])?;
    }
    Ok(true)
}
