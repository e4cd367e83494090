//! Reads `acetate_op`, the audit log, page by page.
//!
//! Each call is a transaction of its own, so that a slow consumer does not keep the WAL from
//! restarting. Pages bounded by ids fit together: committed rows never change, later ones have
//! larger ids, and only the oldest are deleted.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use crate::delta::{
    AuditProcedure, AuditRow, AuditSet, Dropped, MergedPath, Result, SHORTENED, StoreError,
};
use crate::vfs::{CallId, FileId, Time};

use super::audit_filter::AuditFilter;
use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{OpenMode, Session, open_read_only};
use crate::delta::sqlite::table::undone_rows::{self, UndoneRows};
use crate::delta::sqlite::table::{audit_bound, prune, schema};

/// Maximum number of rows per page.
const PAGE_ROWS: usize = 1000;

/// The columns that [`decode`] reads first; [`LATER_COLUMNS`] follow.
const COLUMNS: &str = "id, time, time_nsec, client, uid, gid, procedure, path, path2, fileid, \
                       offset, length";

/// The columns that [`decode`] reads after them. A session of an earlier version may lack them.
const LATER_COLUMNS: [&str; 10] = [
    "call",
    "export",
    "note",
    "set_mode",
    "set_uid",
    "set_gid",
    "set_atime",
    "set_atime_nsec",
    "set_mtime",
    "set_mtime_nsec",
];

/// Reads the audit log of a session, which a server may be writing.
pub struct AuditReader {
    conn: Connection,
    /// The columns that [`decode`] reads, with NULL for columns that the session lacks.
    columns: String,
    /// The column `export`, or NULL.
    export: &'static str,
    /// Held while any connection is open.
    _lock: Option<Arc<SessionLock>>,
}

/// The order in which rows are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Oldest first.
    #[default]
    OldestFirst,
    /// Newest first.
    NewestFirst,
}

/// Consecutive rows among the selected ones.
#[derive(Debug, Default)]
pub struct AuditPage {
    /// The rows with their ids, in the requested order.
    pub rows: Vec<(i64, std::result::Result<AuditRow, InvalidRow>)>,
    /// The range of ids of the remaining rows; `None` after the last page.
    pub rest: Option<RangeInclusive<i64>>,
}

/// A row that cannot be decoded: another program wrote or changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRow {
    /// The column with an invalid value.
    pub column: &'static str,
}

/// The procedure, paths and object of a change.
#[derive(Debug, Clone, Copy)]
pub struct MentionedNames<'r> {
    /// The procedure.
    pub procedure: AuditProcedure,
    /// The path, at the time of the change.
    pub path: &'r [u8],
    /// The other path of RENAME (target) and LINK (new name).
    pub path2: Option<&'r [u8]>,
    /// The changed object.
    pub fileid: FileId,
}

impl Session {
    /// Opens the audit log; `None` if acetate has never served the session.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn audit(&self) -> Result<Option<AuditReader>> {
        let conn = match self.mode {
            OpenMode::Serve => connect::open(&self.path, Role::Reader)?,
            OpenMode::ReadOnly | OpenMode::Inspect => open_read_only(&self.path)?,
        };
        if !schema::has_table(&conn, "acetate_op")? {
            return Ok(None);
        }
        let or_null = |column: &'static str| -> Result<&'static str> {
            let is_there = schema::has_column(&conn, "acetate_op", column)?;
            Ok(if is_there { column } else { "NULL" })
        };
        let mut columns = COLUMNS.to_owned();
        for column in LATER_COLUMNS {
            columns.push_str(&format!(", {}", or_null(column)?));
        }
        let export = or_null("export")?;
        Ok(Some(AuditReader { conn, columns, export, _lock: self.lock.clone() }))
    }
}

impl AuditReader {
    /// The rows deleted from the audit log by pruning or by its bound, if any.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn dropped(&self) -> Result<Option<Dropped>> {
        audit_bound::dropped(&self.conn)
    }

    /// The last row that may be pruned at `now`; 0 if none may be.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn last_prunable(&self, now: Time) -> Result<i64> {
        prune::last_prunable(&self.conn, now)
    }

    /// The row that exactly `count` rows follow; 0 if there are fewer rows.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn last_but(&self, count: u64) -> Result<i64> {
        let mut statement =
            self.conn.prepare("SELECT id FROM acetate_op ORDER BY id DESC LIMIT 1 OFFSET ?1")?;
        let offset = i64::try_from(count).unwrap_or(i64::MAX);
        Ok(statement.query_row([offset], |row| row.get(0)).optional()?.unwrap_or(0))
    }

    /// The last row before the first one at or after `since`; 0 if there is none.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn last_before(&self, since: Time) -> Result<i64> {
        let sql = "SELECT max(id) FROM acetate_op WHERE id <
                     ifnull((SELECT min(id) FROM acetate_op WHERE (time, time_nsec) >= (?1, ?2)),
                            9223372036854775807)";
        let mut statement = self.conn.prepare(sql)?;
        let last = statement.query_row([since.secs, since.nanos.into()], |row| row.get(0))?;
        Ok(Option::unwrap_or(last, 0))
    }

    /// Runs `read` on one snapshot of the session, which all calls of this reader then share.
    ///
    /// # Errors
    /// The session cannot be read, or the error of `read`.
    pub fn at_once<T, E: From<StoreError>>(
        &self,
        read: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let snapshot = self.conn.unchecked_transaction().map_err(StoreError::from)?;
        let read = read();
        drop(snapshot);
        read
    }

    /// The rows of the log whose changes a restore took back.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn undone_rows(&self) -> Result<UndoneRows> {
        undone_rows::load(&self.conn)
    }

    /// Calls `each` for the rows of `acetate_past`, which were kept for `apply` when the log was
    /// pruned, with their ids. They have the time, procedure, paths and object of the original
    /// rows.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn past(
        &self,
        order: Order,
        each: &mut dyn FnMut(i64, &AuditRow) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if !schema::has_table(&self.conn, "acetate_past")? {
            return Ok(ControlFlow::Continue(()));
        }
        let nulls = ", NULL".repeat(2 + LATER_COLUMNS.len());
        let mut statement = self.conn.prepare_cached(&format!(
            "SELECT id, time, time_nsec, '0.0.0.0:0', 0, 0, procedure, path, path2, fileid {nulls}
             FROM acetate_past ORDER BY id {}",
            order.to_sql()
        ))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            if let Ok(row) = decode(row)
                && each(id, &row).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The id of the last row; 0 if there is none.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn last_id(&self) -> Result<i64> {
        let mut statement = self.conn.prepare_cached("SELECT max(id) FROM acetate_op")?;
        Ok(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0))
    }

    /// The next page among the rows `ids`: rows that match `filter` and whose ids are `wanted`.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn page(
        &self,
        filter: &AuditFilter,
        order: Order,
        ids: RangeInclusive<i64>,
        wanted: &dyn Fn(i64) -> bool,
    ) -> Result<AuditPage> {
        let (conditions, mut values) = filter.to_sql(self.export);
        let sql = format!(
            "SELECT {} FROM acetate_op
             WHERE id BETWEEN ? AND ?{conditions} ORDER BY id {}",
            self.columns,
            order.to_sql()
        );
        values.splice(0..0, [Value::Integer(*ids.start()), Value::Integer(*ids.end())]);
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut page = AuditPage::default();
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            if !wanted(id) {
                continue;
            }
            page.rows.push((id, decode(row)));
            if page.rows.len() == PAGE_ROWS {
                page.rest = match order {
                    Order::OldestFirst => id.checked_add(1).map(|next| next..=*ids.end()),
                    Order::NewestFirst => id.checked_sub(1).map(|next| *ids.start()..=next),
                };
                break;
            }
        }
        Ok(page)
    }

    /// Time in seconds and id of each row from second `from` to second `to`, inclusive, sorted.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn times(&self, from: i64, to: i64) -> Result<Vec<(i64, i64)>> {
        let mut statement = self.conn.prepare(
            "SELECT CAST(time AS INTEGER), id FROM acetate_op WHERE time BETWEEN ?1 AND ?2",
        )?;
        let times = statement.query_map([from, to], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut times: Vec<_> = times.collect::<rusqlite::Result<_>>()?;
        times.sort_unstable();
        Ok(times)
    }

    /// Calls `each` with the paths and object of the rows `ids`, or with `None` for an invalid row.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn mentions(
        &self,
        order: Order,
        ids: &RangeInclusive<i64>,
        each: &mut dyn FnMut(i64, Option<MentionedNames<'_>>),
    ) -> Result<()> {
        let mut statement = self.conn.prepare_cached(&format!(
            "SELECT id, procedure, path, path2, fileid FROM acetate_op
             WHERE id BETWEEN ?1 AND ?2 ORDER BY id {}",
            order.to_sql()
        ))?;
        let mut rows = statement.query([ids.start(), ids.end()])?;
        while let Some(row) = rows.next()? {
            each(row.get(0)?, mention(row));
        }
        Ok(())
    }
}

impl Order {
    fn to_sql(self) -> &'static str {
        match self {
            Self::OldestFirst => "ASC",
            Self::NewestFirst => "DESC",
        }
    }
}

impl AuditRow {
    /// The procedure, paths and object of the change.
    pub fn mention(&self) -> MentionedNames<'_> {
        MentionedNames {
            procedure: self.procedure,
            path: self.path.as_bytes(),
            path2: self.path2.as_ref().map(MergedPath::as_bytes),
            fileid: self.fileid,
        }
    }
}

/// Decodes (id, procedure, path, path2, fileid).
fn mention<'r>(row: &'r Row<'_>) -> Option<MentionedNames<'r>> {
    let procedure = AuditProcedure::from_name(row.get_ref(1).ok()?.as_str().ok()?)?;
    let path = path_bytes(row, 2)?;
    let path2 = path_bytes(row, 3);
    let is_whole = path2.is_some() == has_two_paths(procedure);
    let fileid = FileId(u64::try_from(row.get::<_, i64>(4).ok()?).ok()?);
    is_whole.then_some(MentionedNames { procedure, path, path2, fileid })
}

fn path_bytes<'r>(row: &'r Row<'_>, column: usize) -> Option<&'r [u8]> {
    match row.get_ref(column).ok()? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.starts_with(b"/").then_some(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

fn has_two_paths(procedure: AuditProcedure) -> bool {
    matches!(procedure, AuditProcedure::Rename | AuditProcedure::Link)
}

/// Decodes a row strictly: an unexpected value in any column is an error.
fn decode(row: &Row<'_>) -> std::result::Result<AuditRow, InvalidRow> {
    let odd = |column| InvalidRow { column };
    let number = |at: usize, column| row.get::<_, i64>(at).map_err(|_| odd(column));
    let small = |at, column| u32::try_from(number(at, column)?).map_err(|_| odd(column));
    let text = |at: usize, column| {
        row.get_ref(at).ok().and_then(|value| value.as_str().ok()).ok_or(odd(column))
    };
    let mut is_shortened = false;
    let mut path = |at: usize, column| {
        let bytes = path_bytes(row, at).ok_or(odd(column))?;
        let short = bytes.strip_suffix(b"/").filter(|short| !short.is_empty());
        is_shortened |= short.is_some();
        MergedPath::from_bytes(short.unwrap_or(bytes)).ok_or(odd(column))
    };
    let optional = |at: usize, column| {
        let value = row.get::<_, Option<i64>>(at).map_err(|_| odd(column))?;
        value.map(|value| u64::try_from(value).map_err(|_| odd(column))).transpose()
    };
    let nanos = small(2, "time_nsec")?;
    if nanos >= 1_000_000_000 {
        return Err(odd("time_nsec"));
    }
    let procedure = AuditProcedure::from_name(text(6, "procedure")?).ok_or(odd("procedure"))?;
    let has_none = matches!(row.get_ref(8), Ok(ValueRef::Null));
    if has_none == has_two_paths(procedure) {
        return Err(odd("path2"));
    }
    Ok(AuditRow {
        time: Time { secs: number(1, "time")?, nanos },
        client: text(3, "client")?.parse().map_err(|_| odd("client"))?,
        uid: small(4, "uid")?,
        gid: small(5, "gid")?,
        procedure,
        path: path(7, "path")?,
        path2: if has_none { None } else { Some(path(8, "path2")?) },
        fileid: FileId(number(9, "fileid")?.try_into().map_err(|_| odd("fileid"))?),
        offset: optional(10, "offset")?,
        length: optional(11, "length")?,
        call: row
            .get::<_, Option<i64>>(12)
            .map_err(|_| odd("call"))?
            .map(|call| CallId(call.cast_unsigned())),
        export: match row.get_ref(13) {
            Ok(ValueRef::Null) => None,
            _ => Some(text(13, "export")?.into()),
        },
        note: match row.get_ref(14) {
            Ok(ValueRef::Null) => is_shortened.then(|| SHORTENED.to_owned()),
            _ => Some(text(14, "note")?.to_owned()),
        },
        set: decode_set(row)?,
    })
}

/// Decodes the attributes that a row set.
fn decode_set(row: &Row<'_>) -> std::result::Result<AuditSet, InvalidRow> {
    let number = |at: usize| {
        let odd = InvalidRow { column: LATER_COLUMNS[at] };
        row.get::<_, Option<i64>>(12 + at).map_err(|_| odd)
    };
    let small = |at: usize| {
        let odd = InvalidRow { column: LATER_COLUMNS[at] };
        number(at)?.map(|value| u32::try_from(value).map_err(|_| odd)).transpose()
    };
    let time = |at: usize| {
        let (secs, nanos) = (number(at)?, small(at + 1)?.unwrap_or(0));
        match secs {
            Some(_) if nanos >= 1_000_000_000 => Err(InvalidRow { column: LATER_COLUMNS[at + 1] }),
            secs => Ok(secs.map(|secs| Time { secs, nanos })),
        }
    };
    Ok(AuditSet {
        mode: small(3)?,
        uid: small(4)?,
        gid: small(5)?,
        atime: time(6)?,
        mtime: time(8)?,
    })
}
