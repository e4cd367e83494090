//! `acetate_op`: the audit log.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use rusqlite::{Connection, params};

use crate::delta::{AuditRow, LateChange, Procedure, Result};
use crate::vfs::{CallId, FileId};

use super::meta;
use super::value::Bytes;

/// Rows at the end of the log in which the changes are looked for whose answers may not have
/// arrived: more than there are calls in flight.
const LATE_ROWS: u32 = 4096;

/// Clients whose addresses are kept as the log has them: each connection is one.
const MAX_CLIENTS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The addresses of the last clients, as the log has them: to write one out takes as long as to
/// find an entry.
pub(super) struct Clients(LruCache<SocketAddr, Arc<str>>);

impl Clients {
    /// None.
    pub(super) fn new() -> Self {
        Self(LruCache::new(MAX_CLIENTS))
    }

    /// The address, written out.
    pub(super) fn text(&mut self, client: SocketAddr) -> Arc<str> {
        Arc::clone(self.0.get_or_insert(client, || client.to_string().into()))
    }
}

/// The batch's last row, while a WRITE that goes on where it ended may share it.
#[derive(Clone, Default)]
pub(super) struct Tail(Option<(i64, AuditRow)>);

impl Tail {
    /// The length that the last row gets in place of a new `row`, if that goes on where it ended.
    pub(super) fn joined(&self, row: &AuditRow) -> Option<u64> {
        self.0.as_ref().and_then(|(_, last)| joined(last, row))
    }

    /// Gives the last row another length.
    pub(super) fn lengthen(&mut self, conn: &Connection, length: u64) -> Result<()> {
        let Some((id, last)) = &mut self.0 else { return Ok(()) };
        let mut update = conn.prepare_cached("UPDATE acetate_op SET length = ?2 WHERE id = ?1")?;
        update.execute(params![*id, length.cast_signed()])?;
        last.length = Some(length);
        Ok(())
    }

    /// Writes `row`, whose client is called `client`.
    pub(super) fn write(&mut self, conn: &Connection, row: &AuditRow, client: &str) -> Result<()> {
        self.0 = None;
        let id = insert(conn, row, client)?;
        self.0 = (row.procedure == Procedure::Write).then(|| (id, row.clone()));
        Ok(())
    }
}

/// The length of both WRITEs as one, if `row` goes on where `last` ended.
fn joined(last: &AuditRow, row: &AuditRow) -> Option<u64> {
    let same = row.procedure == Procedure::Write
        && last.fileid == row.fileid
        && (last.client, last.uid, last.gid) == (row.client, row.uid, row.gid)
        && last.export == row.export
        && last.path == row.path
        && last.path2 == row.path2;
    let end = last.offset?.checked_add(last.length?)?;
    (same && row.offset? == end).then(|| last.length?.checked_add(row.length?)).flatten()
}

fn insert(conn: &Connection, row: &AuditRow, client: &str) -> Result<i64> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, path2,
           fileid, offset, length, call, export, note)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let id = statement.insert(params![
        row.time.secs,
        row.time.nanos,
        client,
        row.uid,
        row.gid,
        row.procedure.as_str(),
        Bytes(row.path.as_bytes()),
        row.path2.as_ref().map(|path| Bytes(path.as_bytes())),
        row.fileid.0.cast_signed(),
        row.offset.map(u64::cast_signed),
        row.length.map(u64::cast_signed),
        row.call.map(|call| call.0.cast_signed()),
        row.export.as_deref(),
        row.note.as_deref(),
    ])?;
    Ok(id)
}

/// Notes that no change so far has certainly been heard of by the client that asked for it.
pub(super) fn doubt_answers(conn: &Connection) -> Result<()> {
    let last: Option<i64> =
        conn.query_row("SELECT max(id) FROM acetate_op", [], |row| row.get(0))?;
    match last {
        Some(last) if meta::get(conn, meta::LATE_OP)? != Some(last) => {
            meta::put(conn, meta::LATE_OP, last)
        }
        _ => Ok(()),
    }
}

/// The last changes that must not be made twice and of whose answers there is
/// [doubt](doubt_answers), oldest first.
///
/// A clean end does not settle them: its server may not have been asked again yet. They go as
/// others are made.
pub(super) fn late_changes(conn: &Connection) -> Result<Vec<LateChange>> {
    let Some(until) = meta::get::<i64>(conn, meta::LATE_OP)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare(
        "SELECT call, fileid FROM acetate_op
         WHERE id > (SELECT max(id) FROM acetate_op) - ?1 AND id <= ?2 AND call IS NOT NULL
         ORDER BY id",
    )?;
    let changes = statement.query_map([i64::from(LATE_ROWS), until], |row| {
        let (call, fileid): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (call, fileid) = (CallId(call.cast_unsigned()), FileId(fileid.cast_unsigned()));
        Ok(LateChange { call, fileid })
    })?;
    Ok(changes.collect::<rusqlite::Result<_>>()?)
}
