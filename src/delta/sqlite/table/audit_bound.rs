//! How much of the audit log stays where a session has a limit of bytes or files: the newest
//! [`MAX_AUDIT_BYTES`].
//!
//! The rows are counted together with what the session takes: when a limit is first set, and when
//! a session with a limit is first changed after it was opened. From then on a change whose row
//! goes past the bound deletes the oldest rows in its own transaction, a bounded number of them:
//! a log that was longer when counting began becomes shorter with each change. `acetate_meta`
//! says how many rows are gone and when the first of them was written (invariant M6).

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{AuditRow, Dropped, MAX_PATH_BYTES, Result};
use crate::vfs::Time;

use super::prune::{self, PrunedFacts};
use super::{meta, op, value};

/// The most that the rows of the audit log may take in a session with a limit of bytes or files,
/// in bytes.
const MAX_AUDIT_BYTES: u64 = 64 << 20;

/// How far the log grows past that before rows are dropped, in bytes: one write of
/// `acetate_meta` for so much of the log.
const MAX_AUDIT_SLACK_BYTES: u64 = 64 << 10;

/// The most rows that one change drops.
const MAX_DROPPED_ROWS: usize = 1024;

/// What a row takes besides its texts, in bytes.
const ROW_BYTES: u64 = 64;

// The calls that must not be made twice stay in the log (decision 0016).
const _: () = assert!(
    MAX_AUDIT_BYTES / op::LATE_ROWS as u64 > 2 * MAX_PATH_BYTES as u64 + op::MAX_NOTE_BYTES as u64
);

/// [`bytes_of`] in SQL.
const SQL_BYTES: &str = "64 + octet_length(path) + ifnull(octet_length(path2), 0)
   + octet_length(client) + ifnull(octet_length(export), 0) + ifnull(octet_length(note), 0)";

/// What the log holds, as far as it is counted.
#[derive(Debug, Clone, Copy)]
struct LogSize {
    /// Bytes of the rows from `first` on.
    bytes: u64,
    /// Rows with smaller ids are not counted: they are to be dropped.
    first: i64,
}

/// The bound, once the log is counted.
#[derive(Debug, Default)]
pub struct AuditBound {
    /// Whether a limit applies to the operation: rows are dropped only then.
    pub applies: bool,
    held: Option<LogSize>,
    /// As it was when the operation began.
    at_operation: Option<LogSize>,
    /// As it was when the batch began.
    at_batch: Option<LogSize>,
}

impl AuditBound {
    /// Counts the log, outside a batch, and bounds it from now on: O([`MAX_AUDIT_BYTES`]).
    pub fn load(&mut self, conn: &Connection) -> Result<()> {
        if self.held.is_some() {
            return Ok(());
        }
        let newest = format!("SELECT id, {SQL_BYTES} FROM acetate_op ORDER BY id DESC");
        let mut statement = conn.prepare(&newest)?;
        let mut rows = statement.query([])?;
        let mut held = LogSize { bytes: 0, first: i64::MIN };
        while let Some(row) = rows.next()? {
            held.bytes += value::unsigned(row, 1)?;
            if held.bytes > MAX_AUDIT_BYTES {
                held.first = row.get(0)?;
                break;
            }
        }
        self.held = Some(held);
        Ok(())
    }

    /// Begins a batch.
    pub fn begin_batch(&mut self) {
        self.at_batch = self.held;
    }

    /// Begins an operation.
    pub fn begin_operation(&mut self) {
        self.applies = false;
        self.at_operation = self.held;
    }

    /// Undoes the counts of the operation, or of the `whole` batch.
    pub fn rolled_back(&mut self, whole: bool) {
        self.held = if whole { self.at_batch } else { self.at_operation };
    }

    /// Counts a row that was added, and drops old rows where it went past the bound.
    pub fn added(&mut self, conn: &Connection, bytes: u64) -> Result<()> {
        let Some(mut held) = self.held else { return Ok(()) };
        held.bytes = held.bytes.saturating_add(bytes);
        if self.applies && held.bytes > MAX_AUDIT_BYTES + MAX_AUDIT_SLACK_BYTES {
            drop_oldest(conn, &mut held)?;
        }
        self.held = Some(held);
        Ok(())
    }

    /// Drops the oldest rows up to `upto`, `most` of them; how many they were.
    pub fn prune(&mut self, conn: &Connection, upto: i64, most: u32) -> Result<u64> {
        let oldest =
            format!("SELECT id, {SQL_BYTES} FROM acetate_op WHERE id <= ?1 ORDER BY id LIMIT ?2");
        let mut statement = conn.prepare_cached(&oldest)?;
        let mut rows = statement.query(params![upto, most])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            if let Some(held) = &mut self.held
                && id >= held.first
            {
                held.bytes = held.bytes.saturating_sub(value::unsigned(row, 1)?);
            }
            last = Some(id);
        }
        drop(rows);
        last.map_or(Ok(0), |last| prune::cut(conn, last, PrunedFacts::Kept))
    }
}

/// The bytes that the audit log's rows take, without the overhead of pages and indexes.
pub fn bytes(conn: &Connection) -> Result<u64> {
    let sum = format!("SELECT total({SQL_BYTES}) FROM acetate_op");
    Ok(conn.query_row(&sum, [], |row| value::unsigned(row, 0))?)
}

/// Drops the oldest rows until the rest fits, or [`MAX_DROPPED_ROWS`] of them.
fn drop_oldest(conn: &Connection, held: &mut LogSize) -> Result<()> {
    let oldest = format!("SELECT id, {SQL_BYTES} FROM acetate_op ORDER BY id LIMIT ?1");
    let mut statement = conn.prepare_cached(&oldest)?;
    let mut rows = statement.query([MAX_DROPPED_ROWS as i64])?;
    let mut last = None;
    while held.bytes > MAX_AUDIT_BYTES {
        let Some(row) = rows.next()? else { break };
        let id: i64 = row.get(0)?;
        if id >= held.first {
            held.bytes = held.bytes.saturating_sub(value::unsigned(row, 1)?);
        }
        last = Some(id);
    }
    drop(rows);
    last.map_or(Ok(()), |last| prune::cut(conn, last, PrunedFacts::Dropped).map(drop))
}

/// What a row takes, in bytes: its texts, and the rest of it.
pub fn bytes_of(row: &AuditRow, client: &str) -> u64 {
    let path = |bytes: usize| bytes.min(MAX_PATH_BYTES);
    let texts = path(row.path.as_bytes().len())
        + row.path2.as_ref().map_or(0, |to| path(to.as_bytes().len()))
        + client.len()
        + row.export.as_ref().map_or(0, |export| export.len())
        + row.note.as_ref().map_or(0, |note| note.len().min(op::MAX_NOTE_BYTES));
    ROW_BYTES + texts as u64
}

/// What was dropped of the log, if anything was.
pub fn dropped(conn: &Connection) -> Result<Option<Dropped>> {
    let mut statement = conn.prepare(
        "SELECT CAST(n.value AS INTEGER), CAST(ifnull(s.value, 0) AS INTEGER)
         FROM acetate_meta n LEFT JOIN acetate_meta s ON s.key = ?2 WHERE n.key = ?1",
    )?;
    let is_kept = meta::get::<i64>(conn, meta::AUDIT_KEPT)? == Some(1);
    let found = statement.query_row(params![meta::AUDIT_DROPPED, meta::AUDIT_SINCE], |row| {
        let rows = row.get::<_, i64>(0)?.max(0).cast_unsigned();
        Ok(Dropped { rows, since: Time { secs: row.get(1)?, nanos: 0 }, is_kept })
    });
    Ok(found.optional()?.filter(|dropped| dropped.rows > 0))
}
