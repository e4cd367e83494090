//! `acetate tool show`: shows a tool call.

use std::path::PathBuf;

use super::call;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, agent_values, output, text};
use crate::delta::sqlite::{AgentAccess, ToolCall};
use crate::inspect::json;
use crate::inspect::tool::{ToolCalls, ToolChange};

/// Show everything about a tool call, and the changes of files within its time.
///
/// The changes are exact for a call of `acetate tool run` or `acetate mcp`. Of another, only the
/// time is known, in whole seconds: what else changed in the first and the last one shows too.
/// What a restore took back ends with `(taken back)`. Exits with 1 if there is no such call.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The call's number.
    id: i64,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let calls = ToolCalls::open(&args.session, AgentAccess::Read)?;
    let Some(call) = calls.get(args.id)? else {
        output::line(format_args!("{}: no such tool call", args.id));
        return Ok(Ending::Findings);
    };
    let changes = calls.changes(std::slice::from_ref(&call.row))?.during(&call.row)?;
    let mut out = Out::new();
    if args.json {
        out.json(call::json(&call, Some(&changes)))?;
    } else {
        print(&call, &changes, &mut out)?;
    }
    out.end()?;
    Ok(Ending::Done)
}

fn print(call: &ToolCall, changes: &[ToolChange], out: &mut Out) -> Result<(), CliError> {
    let row = &call.row;
    let (name, status) = (text::name(&row.name), row.status.as_str());
    out.line(format_args!("{} {name}: {status}", row.id))?;
    let mut field = |name: &str, value: &str| out.line(format_args!("  {name:<11}{value}"));
    field("started", &agent_values::time(Some(row.started_at)))?;
    field("completed", &agent_values::time(row.completed_at))?;
    field("duration", &call::duration(row.duration_ms))?;
    for (name, value) in [("parameters", &call.parameters), ("result", &call.result)] {
        if let Some(value) = value {
            let mark = if json::parse(value).is_some() { "" } else { "(not JSON) " };
            field(name, &format!("{mark}{}", text::line(value)))?;
        }
    }
    if let Some(error) = &call.error {
        field("error", &text::line(error))?;
    }
    if let Some(checkpoint) = row.bounds.and_then(|bounds| bounds.checkpoint) {
        field("checkpoint", &checkpoint.to_string())?;
    }
    let how = if row.bounds.is_some() { "" } else { " in its seconds" };
    field("changes", &format!("{}{how}", changes.len()))?;
    for line in call::change_lines(changes) {
        out.line(format_args!("    {line}"))?;
    }
    Ok(())
}
