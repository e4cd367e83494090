//! `tool_calls`: the calls that an agent made (specification 0.4, "Tool Calls").
//!
//! Rows are added and never changed. The specification has no column `status`. Other
//! implementations do, and their SDKs add a row when a call begins and complete it later.

use rusqlite::{OptionalExtension, Row, ToSql, params};

use crate::delta::Result;

use super::agent::{AgentTable, AgentTables};
use crate::delta::sqlite::table::call_bounds::{self, CallBegin, CallBounds};
use crate::delta::sqlite::table::{schema, value};

const TABLE: AgentTable = AgentTable {
    name: "tool_calls",
    columns: &[
        "id",
        "name",
        "parameters",
        "result",
        "error",
        "started_at",
        "completed_at",
        "duration_ms",
    ],
};

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// The row has no outcome yet.
    Pending,
    /// The call returned a result.
    Success,
    /// The call failed.
    Error,
}

impl CallStatus {
    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Error => "error",
        }
    }
}

/// A row of `tool_calls` without its texts. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    /// The call's number.
    pub id: i64,
    /// The tool's name.
    pub name: Vec<u8>,
    /// The column `status`, or else derived from result and error.
    pub status: CallStatus,
    /// When the call began.
    pub started_at: i64,
    /// When the call ended.
    pub completed_at: Option<i64>,
    /// Duration, in milliseconds.
    pub duration_ms: Option<i64>,
    /// The rows of the audit log that are the call's; `None` if another program recorded it, or it
    /// was recorded afterwards.
    pub bounds: Option<CallBounds>,
}

/// A row of `tool_calls`. Other programs may store values that are not JSON or not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// All columns except the texts.
    pub row: CallRow,
    /// The arguments, in JSON.
    pub parameters: Option<Vec<u8>>,
    /// The result, in JSON.
    pub result: Option<Vec<u8>>,
    /// The error.
    pub error: Option<Vec<u8>>,
}

/// A call to record. Times are in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct NewCall<'a> {
    /// The tool's name.
    pub name: &'a str,
    /// The arguments, in JSON.
    pub parameters: Option<&'a str>,
    /// The result in JSON, or the error.
    pub outcome: std::result::Result<&'a str, &'a str>,
    /// When the call began.
    pub started_at: i64,
    /// When the call ended; not before `started_at`.
    pub completed_at: i64,
    /// Where its rows of the audit log begin; they end with the last row.
    pub begin: Option<CallBegin>,
}

/// Selects calls: a call must meet every condition.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// With this tool name.
    pub name: Option<String>,
    /// Begun at or after this time, in seconds since 1970.
    pub since: Option<i64>,
    /// Begun at or before this time, in seconds since 1970.
    pub until: Option<i64>,
    /// With this outcome.
    pub status: Option<CallStatus>,
    /// Only the last `last` of them.
    pub last: Option<u64>,
}

/// Statistics of all calls of one tool. Durations are in milliseconds and exclude calls without
/// one.
#[derive(Debug, Clone, PartialEq)]
pub struct CallStats {
    /// The tool's name.
    pub name: Vec<u8>,
    /// Number of calls.
    pub calls: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// Number of calls without an outcome.
    pub pending: u64,
    /// Sum of the durations.
    pub total_ms: i64,
    /// Mean duration; `None` if no call has a duration.
    pub mean_ms: Option<f64>,
    /// Longest duration.
    pub max_ms: Option<i64>,
}

impl AgentTables {
    /// Checks that calls can be recorded, without recording one.
    ///
    /// # Errors
    /// As [`AgentTables::record_call`].
    pub fn require_calls(&self) -> Result<()> {
        Ok(self.change(&TABLE)?.rollback()?)
    }

    /// The beginning of a call that begins now, as far as it is known without a checkpoint.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn begin_call(&self) -> Result<CallBegin> {
        Ok(CallBegin { last_op: call_bounds::last_op(&self.conn)?, checkpoint: None })
    }

    /// Records a call; returns its number.
    ///
    /// # Errors
    /// The session cannot be written; it is unchanged.
    pub fn record_call(&self, call: &NewCall<'_>) -> Result<i64> {
        let transaction = self.change(&TABLE)?;
        let (result, error) = (call.outcome.ok(), call.outcome.err());
        let seconds = call.completed_at.saturating_sub(call.started_at);
        // As the specification requires (consistency rule 3), though only to a second's precision.
        let duration_ms = seconds.saturating_mul(1000);
        let status = if error.is_some() { CallStatus::Error } else { CallStatus::Success };
        let status = status.as_str();
        let mut columns: Vec<(&str, &dyn ToSql)> = vec![
            ("name", &call.name),
            ("parameters", &call.parameters),
            ("result", &result),
            ("error", &error),
            ("started_at", &call.started_at),
            ("completed_at", &call.completed_at),
            ("duration_ms", &duration_ms),
        ];
        if schema::has_column(&transaction, TABLE.name, "status")? {
            columns.push(("status", &status));
        }
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let places = vec!["?"; values.len()].join(", ");
        let sql = format!("INSERT INTO tool_calls ({}) VALUES ({places})", names.join(", "));
        let id = transaction.prepare(&sql)?.insert(&values[..])?;
        if let Some(begin) = call.begin {
            // In this transaction nothing else is written, so the last row is the call's end.
            call_bounds::put_ended(&transaction, id, begin)?;
        }
        transaction.commit()?;
        Ok(id)
    }

    /// The calls that match `filter`, in the order in which they were recorded.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>> {
        let Some(status) = self.status_sql()? else { return Ok(Vec::new()) };
        let (bounds, table) = self.bounds_sql()?;
        let mut statement = self.conn.prepare(&format!(
            "SELECT id, name, started_at, completed_at, duration_ms, {status}, {bounds} FROM {table}
             WHERE (?1 IS NULL OR name = ?1) AND (?2 IS NULL OR started_at >= ?2)
               AND (?3 IS NULL OR started_at <= ?3) AND (?4 IS NULL OR {status} = ?4)
             ORDER BY id DESC LIMIT ?5"
        ))?;
        let last = filter.last.map_or(-1, |last| i64::try_from(last).unwrap_or(i64::MAX));
        let wanted = filter.status.map(CallStatus::as_str);
        let rows = statement
            .query_map(params![filter.name, filter.since, filter.until, wanted, last], read)?;
        let mut calls: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
        calls.reverse();
        Ok(calls)
    }

    /// One call with its texts.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn call(&self, id: i64) -> Result<Option<ToolCall>> {
        let Some(status) = self.status_sql()? else { return Ok(None) };
        let (bounds, table) = self.bounds_sql()?;
        let mut statement = self.conn.prepare_cached(&format!(
            "SELECT id, name, started_at, completed_at, duration_ms, {status}, {bounds}, parameters,
               result, error FROM {table} WHERE id = ?1"
        ))?;
        let found = statement.query_row([id], |row| {
            Ok(ToolCall {
                row: read(row)?,
                parameters: value::optional_bytes(row, 9)?,
                result: value::optional_bytes(row, 10)?,
                error: value::optional_bytes(row, 11)?,
            })
        });
        Ok(found.optional()?)
    }

    /// Statistics per tool, most frequent first.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn call_stats(&self) -> Result<Vec<CallStats>> {
        let Some(status) = self.status_sql()? else { return Ok(Vec::new()) };
        // total() and avg() compute in REAL, so a sum beyond the integer range is no error.
        let mut statement = self.conn.prepare(&format!(
            "SELECT name, count(*), sum({status} = 'error'), sum({status} = 'pending'),
               CAST(total(duration_ms) AS INTEGER), avg(duration_ms), max(duration_ms)
             FROM tool_calls GROUP BY name ORDER BY 2 DESC, 1"
        ))?;
        let stats = statement.query_map([], |row| {
            Ok(CallStats {
                name: value::bytes(row, 0)?.to_vec(),
                calls: value::unsigned(row, 1)?,
                errors: value::unsigned(row, 2)?,
                pending: value::unsigned(row, 3)?,
                total_ms: value::int(row, 4)?,
                mean_ms: row.get(5)?,
                max_ms: value::optional_int(row, 6)?,
            })
        })?;
        Ok(stats.collect::<rusqlite::Result<_>>()?)
    }

    /// The columns of [`CallRow::bounds`], and the table to read calls from.
    fn bounds_sql(&self) -> Result<(&'static str, &'static str)> {
        let with = "tool_calls LEFT JOIN acetate_tool_call ON acetate_tool_call.call = id";
        Ok(match call_bounds::is_used(&self.conn)? {
            true => (call_bounds::COLUMNS, with),
            false => ("NULL, NULL, NULL", TABLE.name),
        })
    }

    /// The SQL expression for [`CallRow::status`]; `None` if the table does not exist.
    fn status_sql(&self) -> Result<Option<String>> {
        if !self.has(&TABLE)? {
            return Ok(None);
        }
        let has_status = schema::has_column(&self.conn, TABLE.name, "status")?;
        let stored = if has_status { "status" } else { "NULL" };
        // 'pending' is the column's default, so writers that do not set `status` leave it too.
        Ok(Some(format!(
            "CASE WHEN {stored} IN ('success', 'error') THEN {stored}
               WHEN error IS NOT NULL THEN 'error'
               WHEN result IS NOT NULL THEN 'success'
               WHEN {stored} = 'pending' OR completed_at IS NULL THEN 'pending'
               ELSE 'success' END"
        )))
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    let status = match value::bytes(row, 5)? {
        b"error" => CallStatus::Error,
        b"pending" => CallStatus::Pending,
        _ => CallStatus::Success,
    };
    Ok(CallRow {
        id: value::int(row, 0)?,
        name: value::bytes(row, 1)?.to_vec(),
        status,
        started_at: value::int(row, 2)?,
        completed_at: value::optional_int(row, 3)?,
        duration_ms: value::optional_int(row, 4)?,
        bounds: call_bounds::read(row, 6)?,
    })
}
