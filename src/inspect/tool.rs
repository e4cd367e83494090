//! Reads and records the tool calls of an agent, and finds what each of them changed.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::agent_rows::{AgentRows, either};
use super::error::{InspectError, Result};
use super::json;
use super::opened::open_session;
use crate::delta::sqlite::{
    AgentAccess, AuditFilter, AuditReader, CallBegin, CallFilter, CallRow, CallStats, InvalidRow,
    NewCall, Order, ToolCall, UndoneRows,
};
use crate::delta::{AuditRow, StoreError};

/// The open table of tool calls; other processes may add to it at any time.
#[derive(Debug)]
pub struct ToolCalls {
    /// The session file, or the replica.
    session: PathBuf,
    tables: AgentRows,
}

impl ToolCalls {
    /// Opens the tool calls of `session`: a file, the replica of a session in a database, or its
    /// URL, without the changes of calls.
    ///
    /// # Errors
    /// `session` is not a session, or `access` asks to write and it cannot be written.
    pub fn open(session: &Path, access: AgentAccess) -> Result<Self> {
        Ok(Self { session: session.to_owned(), tables: AgentRows::open(session, access)? })
    }

    /// Checks that calls can be recorded, without recording one.
    ///
    /// # Errors
    /// Calls cannot be recorded.
    pub fn require_writable(&self) -> Result<()> {
        either!(&self.tables, tables => tables.require_calls()).map_err(|error| self.failed(error))
    }

    /// The beginning of a call that begins now. The caller adds the checkpoint before it.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn begin(&self) -> Result<CallBegin> {
        either!(&self.tables, tables => tables.begin_call()).map_err(|error| self.failed(error))
    }

    /// Records a call that has ended; returns its id.
    ///
    /// # Errors
    /// Parameters or result are not JSON, the end is before the start, or the session cannot be
    /// written. Nothing is recorded then.
    pub fn record(&self, call: &NewCall<'_>) -> Result<i64> {
        if call.completed_at < call.started_at {
            let what = "the call cannot end before it began".to_owned();
            return Err(InspectError::Invalid { what });
        }
        let parameters = call.parameters.map(|text| json::checked("parameters", text));
        let outcome = match call.outcome {
            Ok(result) => Ok(json::checked("result", result)?),
            Err(error) => Err(json::limited("error", error)?),
        };
        let call = NewCall { parameters: parameters.transpose()?, outcome, ..*call };
        either!(&self.tables, tables => tables.record_call(&call))
            .map_err(|error| self.failed(error))
    }

    /// The calls that match a filter, in the order in which they were recorded.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn list(&self, filter: &CallFilter) -> Result<Vec<CallRow>> {
        either!(&self.tables, tables => tables.calls(filter)).map_err(|error| self.failed(error))
    }

    /// The record of a call.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn get(&self, id: i64) -> Result<Option<ToolCall>> {
        either!(&self.tables, tables => tables.call(id)).map_err(|error| self.failed(error))
    }

    /// Statistics of each tool's calls, the most frequent tool first.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn stats(&self) -> Result<Vec<CallStats>> {
        either!(&self.tables, tables => tables.call_stats()).map_err(|error| self.failed(error))
    }

    /// Prepares to read the changes of the tree while `calls` ran.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn changes(&self, calls: &[CallRow]) -> Result<ToolChanges> {
        let path = self.session.clone();
        let audit = open_session(&path)?.audit().map_err(|error| self.failed(error))?;
        let without_bounds = || calls.iter().filter(|call| call.bounds.is_none());
        let from = without_bounds().map(|call| call.started_at).min();
        let to = without_bounds().map(last_second).max();
        let times = match (&audit, from, to) {
            (Some(audit), Some(from), Some(to)) => audit.times(from, to),
            _ => Ok(Vec::new()),
        };
        let undone = audit.as_ref().map(AuditReader::undone_rows).transpose();
        let undone = undone.map_err(|error| self.failed(error))?.unwrap_or_default();
        Ok(ToolChanges { path, audit, undone, times: times.map_err(|error| self.failed(error))? })
    }

    fn failed(&self, source: StoreError) -> InspectError {
        self.tables.failed(source)
    }
}

/// A row of the audit log.
#[derive(Debug)]
pub struct ToolChange {
    /// The row's number.
    pub id: i64,
    /// The row, or the reason why it cannot be decoded.
    pub row: std::result::Result<AuditRow, InvalidRow>,
    /// Whether restores took its change back.
    pub is_taken_back: bool,
}

/// The rows of the audit log in a range of time.
pub struct ToolChanges {
    path: PathBuf,
    /// `None` if acetate never served the session: it has no audit log then.
    audit: Option<AuditReader>,
    /// Which rows restores took back.
    undone: UndoneRows,
    /// Second and id of each row, sorted, for calls without bounds: the table itself has no index
    /// by time.
    times: Vec<(i64, i64)>,
}

impl ToolChanges {
    /// The rows written while a call ran, in order. For a call without bounds, its first and its
    /// last second count in full.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn during(&self, call: &CallRow) -> Result<Vec<ToolChange>> {
        let mut rows = Vec::new();
        if let Some(bounds) = call.bounds {
            self.read(bounds.begin_op.saturating_add(1)..=bounds.end_op, &mut rows)?;
            return Ok(rows);
        }
        let begin = self.times.partition_point(|(time, _)| *time < call.started_at);
        let end = self.times.partition_point(|(time, _)| *time <= last_second(call));
        let times = self.times.get(begin..end).unwrap_or_default();
        // Reads runs of consecutive ids at once.
        for run in times.chunk_by(|(_, one), (_, next)| one.checked_add(1) == Some(*next)) {
            let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) else { continue };
            self.read(*first..=*last, &mut rows)?;
        }
        Ok(rows)
    }

    /// Adds the rows with these ids.
    fn read(&self, ids: RangeInclusive<i64>, rows: &mut Vec<ToolChange>) -> Result<()> {
        let mut rest = Some(ids);
        while let (Some(audit), Some(ids)) = (&self.audit, rest.take()) {
            let page = audit.page(&AuditFilter::default(), Order::OldestFirst, ids, &|_| true);
            let page =
                page.map_err(|source| InspectError::Store { session: self.path.clone(), source })?;
            rows.extend(page.rows.into_iter().map(|(id, row)| {
                let is_taken_back =
                    row.as_ref().is_ok_and(|row| self.undone.is_taken_back(id, row));
                ToolChange { id, row, is_taken_back }
            }));
            rest = page.rest;
        }
        Ok(())
    }
}

/// The last second in which a call ran; without an end, it still runs.
fn last_second(call: &CallRow) -> i64 {
    call.completed_at.unwrap_or(i64::MAX)
}
