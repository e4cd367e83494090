//! `acetate_meta.tree_sum`: a sum over the tree's rows, by which a change of another program shows.
//!
//! Another program saves no rows for checkpoints. The sum is taken when the session is closed, and
//! compared when it is opened, so no change costs anything. It is absent while the session is
//! written, and after an unclean end: what another program changes then is not found. It says
//! nothing if an earlier version of acetate added rows to the log since.
//!
//! It has the columns that other programs set: not `nlink`, which opening counts again, nor times
//! of access. Of content, it has only which chunks there are: a write also changes the file's size
//! or times, and the lengths would take the pages of all content to read.

use std::hash::Hasher;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use siphasher::sip::SipHasher13;

use crate::delta::{Incomplete, Result};

use super::{checkpoint, incomplete, meta};

/// The rows that are summed.
const ROWS: [&str; 5] = [
    "SELECT ino, mode, uid, gid, size, mtime, mtime_nsec, ctime, ctime_nsec, rdev FROM fs_inode",
    "SELECT parent_ino, name, ino FROM fs_dentry",
    "SELECT ino, chunk_index FROM fs_data",
    "SELECT ino, target FROM fs_symlink",
    "SELECT path FROM fs_whiteout",
];

/// Stores the sum, if there is a checkpoint.
pub fn store(conn: &Connection) -> Result<()> {
    if !checkpoint::any(conn)? {
        return Ok(());
    }
    meta::put(conn, meta::TREE_SUM, stamp(conn)?)
}

/// Forgets the sum: rows are about to change.
pub fn forget(conn: &Connection) -> Result<()> {
    meta::delete(conn, meta::TREE_SUM)
}

/// Whether another program changed rows of the tree since the session was closed.
pub fn is_foreign(conn: &Connection) -> Result<bool> {
    let is_clean = meta::get::<i64>(conn, meta::CLEAN)? == Some(1);
    if !is_clean || !checkpoint::any(conn)? {
        return Ok(false);
    }
    let Some(stored) = meta::get::<String>(conn, meta::TREE_SUM)? else { return Ok(false) };
    let of_this_log = stored
        .rsplit_once(' ')
        .is_some_and(|(_, last)| last_op(conn).is_ok_and(|now| last.parse() == Ok(now)));
    Ok(of_this_log && stamp(conn)? != stored)
}

/// Marks all checkpoints as incomplete if another program changed rows of the tree since the
/// session was closed. Call before the session is written.
pub fn compare(conn: &Connection) -> Result<()> {
    if is_foreign(conn)? {
        let count = incomplete::mark_all(conn, Incomplete::OtherProgram)?;
        tracing::warn!(count, "another program changed the tree: its checkpoints are incomplete");
        store(conn)?;
    }
    Ok(())
}

fn stamp(conn: &Connection) -> Result<String> {
    let mut sum: u64 = 0;
    for (table, rows) in ROWS.iter().enumerate() {
        let mut statement = conn.prepare(rows)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut hasher = SipHasher13::new();
            hasher.write_u8(table as u8);
            for column in 0..columns {
                add(&mut hasher, row.get_ref(column)?);
            }
            sum = sum.wrapping_add(hasher.finish());
        }
    }
    Ok(format!("{sum:016x} {}", last_op(conn)?))
}

fn add(hasher: &mut SipHasher13, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => hasher.write_u8(0),
        ValueRef::Integer(number) => hasher.write_i64(number),
        ValueRef::Real(number) => hasher.write_u64(number.to_bits()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            hasher.write_usize(bytes.len());
            hasher.write(bytes);
        }
    }
}

fn last_op(conn: &Connection) -> Result<i64> {
    let last = "SELECT ifnull(max(id), 0) FROM acetate_op";
    Ok(conn.prepare_cached(last)?.query_row([], |row| row.get(0))?)
}
