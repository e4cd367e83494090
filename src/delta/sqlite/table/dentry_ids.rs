//! Allocates `fs_dentry.id` and maintains `sqlite_sequence`, the high-water marks of AUTOINCREMENT.
//!
//! SQLite updates `sqlite_sequence` with each row whose id exceeds it, which costs a page of the
//! WAL. acetate assigns the ids itself and keeps `sqlite_sequence` ahead of them. The only effect
//! is that ids in between are skipped.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Result, StoreError};

/// How far `sqlite_sequence` is kept ahead.
const AHEAD: i64 = 1 << 12;

/// Raises the table's high-water mark to `number`, if it has AUTOINCREMENT.
pub fn raise(conn: &Connection, table: &str, number: i64) -> Result<()> {
    let mut update =
        conn.prepare_cached("UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1")?;
    if update.execute(params![table, number])? == 0 && counts(conn, table)? {
        conn.prepare_cached("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)")?
            .execute(params![table, number])?;
    }
    Ok(())
}

/// Whether the table has AUTOINCREMENT; files of other implementations may lack it.
fn counts(conn: &Connection, table: &str) -> Result<bool> {
    let mut statement = conn.prepare_cached(
        "SELECT 1 FROM sqlite_master
         WHERE type = 'table' AND name = ?1 AND sql LIKE '%AUTOINCREMENT%'",
    )?;
    Ok(statement.exists([table])?)
}

/// Allocates ids for `fs_dentry`.
pub struct DentryIds {
    /// The next id.
    next: i64,
    /// The value of `sqlite_sequence`, as far as this transaction has raised it.
    reached: i64,
}

impl DentryIds {
    /// Starts above all ids that were ever used.
    pub fn load(conn: &Connection) -> Result<Self> {
        let mut statement =
            conn.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'fs_dentry'")?;
        let reached: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
        let last = super::dentry::last_id(conn)?;
        let next = last.max(reached.unwrap_or(0)).saturating_add(1);
        Ok(Self { next, reached: i64::MIN })
    }

    /// Allocates the next id.
    pub fn allocate(&mut self, conn: &Connection) -> Result<i64> {
        let id = self.next;
        if id > self.reached {
            let ahead = id
                .checked_add(AHEAD)
                .ok_or_else(|| StoreError::full("all numbers of entries are used"))?;
            raise(conn, "fs_dentry", ahead)?;
            self.reached = ahead;
        }
        self.next += 1;
        Ok(id)
    }

    /// Forgets `reached`, because the transaction was rolled back.
    pub fn rolled_back(&mut self) {
        self.reached = i64::MIN;
    }
}
