//! Removed checkpoints: their rows go to the checkpoint before, in pieces.
//!
//! Removing a checkpoint only marks its row of `acetate_checkpoint`. Until all its saved rows are
//! handed over, each checkpoint before it still reads them where they are: the oldest saved row at
//! or after a checkpoint counts, whichever later checkpoint it belongs to. So a session is exact
//! after each piece. The oldest removed one is handed over first: each row then moves once at most.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{CheckpointId, Ino, Result};

use super::{checkpoint, old_pieces, old_rows, value};

/// `acetate_checkpoint.kind` of a removed one.
pub(super) const REMOVED: &str = "removed";

/// A piece ends once it has this much content, in bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// A table with saved rows.
struct SavedTable {
    old: String,
    /// The length of a row's content.
    length: String,
    /// The condition that a row `p` is of no use to the checkpoint `?1`, which had the inode
    /// numbers below `?2`: that one has a row of its own, or its object was made later.
    is_surplus: String,
}

/// Pieces first: they belong before a whole chunk of the same checkpoint.
fn tables() -> impl Iterator<Item = SavedTable> {
    let pieces = SavedTable {
        old: old_pieces::TABLE.to_owned(),
        length: "length(p.data)".to_owned(),
        // A whole chunk of the earlier one is of an earlier moment than each of these pieces.
        is_surplus: "p.ino >= ?2 OR EXISTS
           (SELECT 1 FROM acetate_old_piece o WHERE o.ino = p.ino AND o.chunk_index = p.chunk_index
              AND o.piece = p.piece AND o.checkpoint = ?1) OR EXISTS
           (SELECT 1 FROM acetate_old_fs_data o WHERE o.ino = p.ino
              AND o.chunk_index = p.chunk_index AND o.checkpoint = ?1)"
            .to_owned(),
    };
    let rows = old_rows::TREE_TABLES.iter().map(|table| {
        let old = table.old();
        let is_later = table.number.map(|n| format!("p.{n} >= ?2")).unwrap_or("false".to_owned());
        let same = table.same_key("o", "p");
        let is_surplus = format!(
            "{is_later} OR EXISTS (SELECT 1 FROM {old} o WHERE {same} AND o.checkpoint = ?1)"
        );
        let length = table.large.map_or("0".to_owned(), |column| format!("length(p.{column})"));
        SavedTable { old, length, is_surplus }
    });
    std::iter::once(pieces).chain(rows)
}

/// Marks a checkpoint as removed; returns whether it was there.
pub fn mark(conn: &Connection, id: CheckpointId) -> Result<bool> {
    let mut mark = conn.prepare_cached(
        "UPDATE acetate_checkpoint SET kind = ?2, name = NULL, labels = '{}'
         WHERE id = ?1 AND kind <> ?2",
    )?;
    Ok(mark.execute(params![id.0, REMOVED])? > 0)
}

/// Whether a removed checkpoint still has its row.
pub fn any(conn: &Connection) -> Result<bool> {
    Ok(checkpoint::is_used(conn)? && oldest(conn)?.is_some())
}

fn oldest(conn: &Connection) -> Result<Option<CheckpointId>> {
    let oldest = "SELECT min(id) FROM acetate_checkpoint WHERE kind = ?1";
    let oldest = conn.prepare_cached(oldest)?.query_row([REMOVED], |row| row.get(0));
    Ok(oldest.optional()?.flatten().map(CheckpointId))
}

/// The checkpoint before another, and its `next_ino`.
pub(super) fn before(conn: &Connection, id: CheckpointId) -> Result<Option<(CheckpointId, Ino)>> {
    let before =
        "SELECT id, next_ino FROM acetate_checkpoint WHERE id < ?1 ORDER BY id DESC LIMIT 1";
    let mut before = conn.prepare_cached(before)?;
    let found = before
        .query_row([id.0], |row| Ok((CheckpointId(row.get(0)?), Ino(value::unsigned(row, 1)?))));
    Ok(found.optional()?)
}

/// Whether removing a checkpoint frees any saved row; not if the one before needs them all.
pub fn frees_any(conn: &Connection, id: CheckpointId) -> Result<bool> {
    let to = before(conn, id)?;
    for SavedTable { old, is_surplus, .. } in tables() {
        let sql = match to {
            Some(_) => format!("SELECT 1 FROM {old} p WHERE p.checkpoint = ?3 AND ({is_surplus})"),
            None => format!("SELECT 1 FROM {old} p WHERE p.checkpoint = ?3"),
        };
        let (to, next) = to.map_or((0, 0), |(to, next)| (to.0, next.0.cast_signed()));
        if conn.prepare_cached(&sql)?.exists([to, next, id.0])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What one piece still may take.
struct PieceBudget {
    rows: u32,
    bytes: u64,
}

impl PieceBudget {
    fn is_used_up(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
}

/// Hands over, or deletes, at most `most` rows of the oldest removed checkpoint, and the
/// checkpoint's own row after the last of them. Returns whether there may be more.
pub fn hand_over_piece(conn: &Connection, most: u32) -> Result<bool> {
    if !checkpoint::is_used(conn)? {
        return Ok(false);
    }
    let Some(from) = oldest(conn)? else { return Ok(false) };
    let to = before(conn, from)?;
    let mut left = PieceBudget { rows: most, bytes: PIECE_BYTES };
    for table in tables() {
        hand_over_some(conn, &table, (from, to), &mut left)?;
        if left.is_used_up() {
            return Ok(true);
        }
    }
    conn.prepare_cached("DELETE FROM acetate_checkpoint WHERE id = ?1")?.execute([from.0])?;
    Ok(oldest(conn)?.is_some())
}

fn hand_over_some(
    conn: &Connection,
    table: &SavedTable,
    (from, to): (CheckpointId, Option<(CheckpointId, Ino)>),
    left: &mut PieceBudget,
) -> Result<()> {
    let SavedTable { old, length, is_surplus } = table;
    let is_surplus = if to.is_some() { is_surplus.as_str() } else { "true" };
    let (to_id, next) = to.map_or((0, 0), |(to, next)| (to.0, next.0.cast_signed()));
    let mut some = conn.prepare_cached(&format!(
        "SELECT p.old_id, ifnull({length}, 0), {is_surplus}
         FROM {old} p WHERE p.checkpoint = ?3 LIMIT ?4"
    ))?;
    let some = some.query_map(params![to_id, next, from.0, left.rows], |row| {
        Ok((row.get::<_, i64>(0)?, value::unsigned(row, 1)?, row.get::<_, bool>(2)?))
    })?;
    // Read first: the rows change their place in the index.
    let some = some.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut delete = conn.prepare_cached(&format!("DELETE FROM {old} WHERE old_id = ?1"))?;
    let mut hand =
        conn.prepare_cached(&format!("UPDATE {old} SET checkpoint = ?2 WHERE old_id = ?1"))?;
    let (mut gone, mut moved) = ((0, 0), (0, 0));
    for (id, bytes, is_surplus) in some {
        match is_surplus {
            true => delete.execute([id])?,
            false => hand.execute([id, to_id])?,
        };
        let count = if is_surplus { &mut gone } else { &mut moved };
        (count.0, count.1) = (count.0 + 1, count.1 + bytes.cast_signed());
        left.rows -= 1;
        left.bytes = left.bytes.saturating_sub(bytes);
        if left.is_used_up() {
            break;
        }
    }
    // What is not counted stays so: NULL.
    let mut count = conn.prepare_cached(
        "UPDATE acetate_checkpoint
         SET saved_rows = saved_rows + ?2, saved_bytes = saved_bytes + ?3 WHERE id = ?1",
    )?;
    let from_now: [&dyn ToSql; 3] = [&from.0, &-(gone.0 + moved.0), &-(gone.1 + moved.1)];
    count.execute(from_now)?;
    count.execute(params![to_id, moved.0, moved.1])?;
    Ok(())
}
