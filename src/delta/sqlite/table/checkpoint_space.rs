//! How much space the saved rows of checkpoints take, and how much they may.

use rusqlite::Connection;

use crate::delta::{Checkpoint, CheckpointId, CheckpointSpace, Result};

use super::{checkpoint, checkpoint_keep, meta, old_rows, removed_checkpoints};

/// Upper estimate of a saved row's size besides its content, in bytes, with its entry in the index:
/// with a second index it was 115 in a tree of deleted base files.
const ROW_BYTES: u64 = 120;

/// The smallest bound unless the session says otherwise, in bytes.
const MIN_BOUND_BYTES: u64 = 256 << 20;

/// Unless the session says otherwise, saved rows may take one byte in so many that the rest takes.
const SHARE_OF_CONTENT: u64 = 4;

/// What the session's checkpoints take; `None` without any. While a removed one is handed over,
/// what could be removed next is not looked for.
pub fn get(conn: &Connection) -> Result<Option<CheckpointSpace>> {
    let all = checkpoint::all(conn)?;
    let has_removed = removed_checkpoints::any(conn)?;
    if all.is_empty() && !has_removed {
        return Ok(None);
    }
    let mut saved_bytes: u64 = 0;
    for one in &all {
        let (rows, bytes) = match one.saved {
            Some(saved) => saved,
            None => old_rows::count(conn, one.id)?,
        };
        let rows = rows.saturating_mul(ROW_BYTES);
        saved_bytes = saved_bytes.saturating_add(bytes).saturating_add(rows);
    }
    let usual =
        (used_bytes(conn)?.saturating_sub(saved_bytes) / SHARE_OF_CONTENT).max(MIN_BOUND_BYTES);
    let max_bytes = checkpoint_keep::get(conn)?.max_bytes.unwrap_or(usual);
    let removable = match !has_removed && saved_bytes > max_bytes {
        true => removable(conn, &all)?,
        false => None,
    };
    let checkpoints = all.len() as u64;
    let incomplete = all.iter().filter(|one| one.incomplete.is_some()).count() as u64;
    Ok(Some(CheckpointSpace {
        checkpoints,
        saved_bytes,
        max_bytes,
        incomplete,
        has_removed,
        removable,
    }))
}

/// The size of the file's pages that are not free.
fn used_bytes(conn: &Connection) -> Result<u64> {
    let number = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok(pages.max(0).cast_unsigned().saturating_mul(number("page_size")?.max(0).cast_unsigned()))
}

/// The oldest checkpoint that may go, and whose removal frees anything. The newest stays: what is
/// saved for it is what changes now.
fn removable(conn: &Connection, all: &[Checkpoint]) -> Result<Option<CheckpointId>> {
    let needed = of_last_restore(conn)?;
    let older = all.split_last().map_or(&[][..], |(_, older)| older);
    for one in older.iter().filter(|one| one.is_automatic() && !needed.contains(&Some(one.id))) {
        if removed_checkpoints::frees_any(conn, one.id)? {
            return Ok(Some(one.id));
        }
    }
    Ok(None)
}

/// The checkpoint that the last restore went back to, and that of the tree before it.
pub fn of_last_restore(conn: &Connection) -> Result<[Option<CheckpointId>; 2]> {
    let id = |key| -> Result<_> { Ok(meta::get::<i64>(conn, key)?.map(CheckpointId)) };
    Ok([id(meta::RESTORED_TO)?, id(meta::RESTORED_FROM)?])
}

/// Records them.
pub fn put_last_restore(conn: &Connection, to: CheckpointId, from: CheckpointId) -> Result<()> {
    meta::put(conn, meta::RESTORED_TO, to.0)?;
    meta::put(conn, meta::RESTORED_FROM, from.0)
}
