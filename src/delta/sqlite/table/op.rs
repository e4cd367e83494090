//! `acetate_op`: the audit log.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use rusqlite::{Connection, ToSql, params};

use crate::delta::{
    AuditProcedure, AuditRow, AuditSet, MAX_PATH_BYTES, MergedPath, Result, UnacknowledgedOp,
};
use crate::growing_lru::growing_lru;
use crate::vfs::{CallId, FileId, Time};

use super::value::Bytes;

/// Number of rows at the end of the log that are searched for calls whose replies may be lost: more
/// than the calls that can be in flight.
pub(super) const LATE_ROWS: u32 = 4096;

/// Maximum age of those rows, in seconds: long enough for a sleeping client, and short enough that
/// a new client rarely reuses the same xids.
pub(super) const LATE_SECS: i64 = 86_400;

/// Maximum length of a row's note, in bytes; longer ones are cut.
pub(super) const MAX_NOTE_BYTES: usize = 4096;

/// Capacity of [`ClientTexts`]; each connection is one client.
const MAX_CLIENTS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Caches the text form of client addresses: formatting one takes as long as finding a dentry.
pub struct ClientTexts(LruCache<SocketAddr, Arc<str>>);

impl ClientTexts {
    pub fn new() -> Self {
        Self(growing_lru(MAX_CLIENTS))
    }

    /// The address as text.
    pub fn text(&mut self, client: SocketAddr) -> Arc<str> {
        Arc::clone(self.0.get_or_insert(client, || client.to_string().into()))
    }
}

/// The batch's last row, which a WRITE that continues where it ended may extend.
#[derive(Clone, Default)]
pub struct LastAuditRow(Option<(i64, AuditRow)>);

impl LastAuditRow {
    /// The combined length, if `row` continues where the last row ended.
    pub fn joined(&self, row: &AuditRow) -> Option<u64> {
        self.0.as_ref().and_then(|(_, last)| joined(last, row))
    }

    /// Changes the length of the last row.
    pub fn lengthen(&mut self, conn: &Connection, length: u64) -> Result<()> {
        let Some((id, last)) = &mut self.0 else { return Ok(()) };
        let mut update = conn.prepare_cached("UPDATE acetate_op SET length = ?2 WHERE id = ?1")?;
        update.execute(params![*id, length.cast_signed()])?;
        last.length = Some(length);
        Ok(())
    }

    /// Writes `row`; `client` is its client's address as text.
    pub fn write(&mut self, conn: &Connection, row: &AuditRow, client: &str) -> Result<()> {
        self.0 = None;
        let id = insert(conn, row, client)?;
        self.0 = (row.procedure == AuditProcedure::Write).then(|| (id, row.clone()));
        Ok(())
    }
}

/// The combined length of both WRITEs, if `row` continues where `last` ended.
fn joined(last: &AuditRow, row: &AuditRow) -> Option<u64> {
    let same = row.procedure == AuditProcedure::Write
        && last.fileid == row.fileid
        && (last.client, last.uid, last.gid) == (row.client, row.uid, row.gid)
        && last.export == row.export
        && last.path == row.path
        && last.path2 == row.path2;
    let end = last.offset?.checked_add(last.length?)?;
    (same && row.offset? == end).then(|| last.length?.checked_add(row.length?)).flatten()
}

/// Inserts a row that sets no attributes.
const INSERT: &str = "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path,
       path2, fileid, offset, length, call, export, note)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// Inserts a row that sets attributes.
const INSERT_SET: &str = "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure,
       path, path2, fileid, offset, length, call, export, note, set_mode, set_uid, set_gid,
       set_atime, set_atime_nsec, set_mtime, set_mtime_nsec)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
       ?20, ?21)";

fn insert(conn: &Connection, row: &AuditRow, client: &str) -> Result<i64> {
    let (path, path2) = (stored(&row.path), row.path2.as_ref().map(stored));
    let plain = params![
        row.time.secs,
        row.time.nanos,
        client,
        row.uid,
        row.gid,
        row.procedure.as_str(),
        Bytes(path),
        path2.map(Bytes),
        row.fileid.0.cast_signed(),
        row.offset.map(u64::cast_signed),
        row.length.map(u64::cast_signed),
        row.call.map(|call| call.0.cast_signed()),
        row.export.as_deref(),
        row.note.as_deref().map(cut),
    ];
    if row.set == AuditSet::default() {
        return Ok(conn.prepare_cached(INSERT)?.insert(plain)?);
    }
    let AuditSet { mode, uid, gid, atime, mtime } = row.set;
    let (atime_secs, atime_nanos) = (atime.map(|time| time.secs), atime.map(|time| time.nanos));
    let (mtime_secs, mtime_nanos) = (mtime.map(|time| time.secs), mtime.map(|time| time.nanos));
    let set = params![mode, uid, gid, atime_secs, atime_nanos, mtime_secs, mtime_nanos];
    let all: Vec<&dyn ToSql> = plain.iter().chain(set).copied().collect();
    Ok(conn.prepare_cached(INSERT_SET)?.insert(all.as_slice())?)
}

/// The first [`MAX_NOTE_BYTES`] of a note, cut at a character boundary.
fn cut(note: &str) -> &str {
    let mut end = note.len().min(MAX_NOTE_BYTES);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    &note[..end]
}

/// A path as stored. A path that is too long is replaced by its deepest directory that fits, with a
/// slash at the end.
fn stored(path: &MergedPath) -> &[u8] {
    let bytes = path.as_bytes();
    if bytes.len() <= MAX_PATH_BYTES {
        return bytes;
    }
    let slash = bytes[..MAX_PATH_BYTES].iter().rposition(|&byte| byte == b'/');
    &bytes[..=slash.unwrap_or(0)]
}

/// The changes up to the row `last` that a retransmission must not repeat, oldest first. Rows older
/// than [`LATE_SECS`], and those before the last [`LATE_ROWS`], are excluded.
pub fn unacknowledged_ops(
    conn: &Connection,
    last: i64,
    now: Time,
) -> Result<Vec<UnacknowledgedOp>> {
    let mut statement = conn.prepare(
        "SELECT call, fileid FROM acetate_op
         WHERE id > (SELECT max(id) FROM acetate_op) - ?1 AND id <= ?2 AND call IS NOT NULL
           AND time > ?3
         ORDER BY id",
    )?;
    let since = now.secs.saturating_sub(LATE_SECS);
    let changes = statement.query_map([i64::from(LATE_ROWS), last, since], |row| {
        let (call, fileid): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (call, fileid) = (CallId(call.cast_unsigned()), FileId(fileid.cast_unsigned()));
        Ok(UnacknowledgedOp { call, fileid })
    })?;
    Ok(changes.collect::<rusqlite::Result<_>>()?)
}
