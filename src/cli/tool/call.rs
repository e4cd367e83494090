//! Formats a tool call and the changes while it ran, as lines and as JSON.

use serde_json::{Map, Value};

use crate::cli::{agent_values, log, text};
use crate::delta::sqlite::{CallRow, InvalidRow, ToolCall};
use crate::inspect::tool::ToolChange;

/// Formats a duration in milliseconds; `-` for `None`.
pub(super) fn duration(ms: Option<i64>) -> String {
    match ms {
        None => "-".to_owned(),
        Some(ms) if ms % 1000 == 0 => format!("{} s", ms / 1000),
        Some(ms) => format!("{ms} ms"),
    }
}

/// The line of a call; its id is padded to `width`.
pub(super) fn line(call: &CallRow, width: usize) -> String {
    format!(
        "{:>width$} {} {:>8} {:<7} {}",
        call.id,
        agent_values::time(Some(call.started_at)),
        duration(call.duration_ms),
        call.status.as_str(),
        text::name(&call.name),
    )
}

/// The lines of changes; a row that cannot be decoded is reported.
pub(super) fn change_lines(changes: &[ToolChange]) -> impl Iterator<Item = String> {
    changes.iter().map(|change| match &change.row {
        Ok(row) => log::line(row, change.is_taken_back),
        Err(InvalidRow { column }) => {
            let id = change.id;
            format!("row {id} of acetate_op: its {column} cannot be read")
        }
    })
}

/// A call for `--json`.
pub(super) fn json(call: &ToolCall, changes: Option<&[ToolChange]>) -> Map<String, Value> {
    let mut object = text::json("tool_call");
    let row = &call.row;
    object.insert("id".to_owned(), row.id.into());
    text::put_path(&mut object, "name", &row.name);
    object.insert("status".to_owned(), row.status.as_str().into());
    agent_values::put_time(&mut object, "started_at", Some(row.started_at));
    agent_values::put_time(&mut object, "completed_at", row.completed_at);
    object.insert("duration_ms".to_owned(), row.duration_ms.into());
    agent_values::put(&mut object, "parameters", call.parameters.as_deref());
    agent_values::put(&mut object, "result", call.result.as_deref());
    let error = call.error.as_deref().map(String::from_utf8_lossy);
    object.insert("error".to_owned(), error.map_or(Value::Null, Value::from));
    object.insert(
        "checkpoint".to_owned(),
        row.bounds.and_then(|one| one.checkpoint.map(|id| id.0)).into(),
    );
    if let Some(changes) = changes {
        object.insert("changes_are_exact".to_owned(), row.bounds.is_some().into());
        let changes = changes.iter().map(|change| change_json(change).into()).collect();
        object.insert("changes".to_owned(), Value::Array(changes));
    }
    object
}

fn change_json(change: &ToolChange) -> Map<String, Value> {
    match &change.row {
        Ok(row) => log::json(change.id, row, change.is_taken_back),
        Err(InvalidRow { column }) => {
            let mut object = text::json("odd_change");
            object.insert("id".to_owned(), change.id.into());
            object.insert("column".to_owned(), (*column).into());
            object
        }
    }
}
