//! Bounds the audit log of a session with a quota of bytes or files to the newest
//! [`MAX_AUDIT_BYTES`].
//!
//! The rows are counted together with the session's usage: when a limit is first set, and before
//! the first change after a session with a limit was opened. From then on, a change whose audit row
//! exceeds the bound deletes the oldest rows in its own transaction. One change deletes a bounded
//! number, so a log that was longer at first shrinks with each change. `acetate_meta` records how
//! many rows were deleted and when the first of them was written (invariant M6).

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{AuditRow, Dropped, MAX_PATH_BYTES, Result};
use crate::vfs::Time;

use super::prune::{self, PrunedFacts};
use super::{meta, op, value};

/// Maximum size of the audit rows in a session with a quota of bytes or files, in bytes.
const MAX_AUDIT_BYTES: u64 = 64 << 20;

/// How far the log may exceed that before rows are deleted, in bytes: `acetate_meta` is written
/// once per this much log.
const MAX_AUDIT_SLACK_BYTES: u64 = 64 << 10;

/// Maximum number of rows that one change deletes.
const MAX_DROPPED_ROWS: usize = 1024;

/// Size of a row besides its texts, in bytes.
const ROW_BYTES: u64 = 64;

// Rows of calls that a retransmission must not repeat stay in the log (decision 0016).
const _: () = assert!(
    MAX_AUDIT_BYTES / op::LATE_ROWS as u64 > 2 * MAX_PATH_BYTES as u64 + op::MAX_NOTE_BYTES as u64
);

/// [`bytes_of`] in SQL.
const SQL_BYTES: &str = "64 + octet_length(path) + ifnull(octet_length(path2), 0)
   + octet_length(client) + ifnull(octet_length(export), 0) + ifnull(octet_length(note), 0)";

/// The counted size of the log.
#[derive(Debug, Clone, Copy)]
struct LogSize {
    /// Bytes of the rows from `first` on.
    bytes: u64,
    /// Rows with smaller ids are not counted; they will be deleted.
    first: i64,
}

/// The bound, which takes effect once the log is counted.
#[derive(Debug, Default)]
pub struct AuditBound {
    /// Whether a limit applies to the current operation: only then are rows deleted.
    pub applies: bool,
    held: Option<LogSize>,
    /// The value when the operation began.
    at_operation: Option<LogSize>,
    /// The value when the batch began.
    at_batch: Option<LogSize>,
}

impl AuditBound {
    /// Counts the log, outside a batch; from then on it is bounded. O([`MAX_AUDIT_BYTES`]).
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

    pub fn begin_batch(&mut self) {
        self.at_batch = self.held;
    }

    pub fn begin_operation(&mut self) {
        self.applies = false;
        self.at_operation = self.held;
    }

    /// Restores the counts of before the operation, or of before the `whole` batch.
    pub fn rolled_back(&mut self, whole: bool) {
        self.held = if whole { self.at_batch } else { self.at_operation };
    }

    /// Counts an added row, and deletes old rows if the log exceeds the bound.
    pub fn added(&mut self, conn: &Connection, bytes: u64) -> Result<()> {
        let Some(mut held) = self.held else { return Ok(()) };
        held.bytes = held.bytes.saturating_add(bytes);
        if self.applies && held.bytes > MAX_AUDIT_BYTES + MAX_AUDIT_SLACK_BYTES {
            drop_oldest(conn, &mut held)?;
        }
        self.held = Some(held);
        Ok(())
    }

    /// Deletes the oldest rows, up to the id `upto` and at most `most`; returns how many.
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

/// The size of the audit log's rows, in bytes, without the overhead of pages and indexes.
pub fn bytes(conn: &Connection) -> Result<u64> {
    let sum = format!("SELECT total({SQL_BYTES}) FROM acetate_op");
    Ok(conn.query_row(&sum, [], |row| value::unsigned(row, 0))?)
}

/// Deletes the oldest rows until the rest fits, at most [`MAX_DROPPED_ROWS`].
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

/// The size of a row, in bytes: its texts and a constant.
pub fn bytes_of(row: &AuditRow, client: &str) -> u64 {
    let path = |bytes: usize| bytes.min(MAX_PATH_BYTES);
    let texts = path(row.path.as_bytes().len())
        + row.path2.as_ref().map_or(0, |to| path(to.as_bytes().len()))
        + client.len()
        + row.export.as_ref().map_or(0, |export| export.len())
        + row.note.as_ref().map_or(0, |note| note.len().min(op::MAX_NOTE_BYTES));
    ROW_BYTES + texts as u64
}

/// The rows deleted from the log's beginning; `None` if there are none.
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
