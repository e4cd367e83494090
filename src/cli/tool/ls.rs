//! `acetate tool ls`: lists tool calls.

use std::path::PathBuf;

use clap::ValueEnum;
use jiff::Timestamp;

use super::call;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::time_args;
use crate::delta::sqlite::{AgentAccess, CallFilter, CallStatus};
use crate::inspect::tool::ToolCalls;

/// List tool calls in the order in which they were recorded.
///
/// A line says number, beginning, duration, status and tool.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Only calls of this tool.
    #[arg(long, value_name = "TOOL")]
    name: Option<String>,

    /// Only calls that began at this moment or later: 2026-11-21T12:00:00Z, or an age (2h30m).
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse)]
    since: Option<Timestamp>,

    /// Only calls that began at this moment or earlier.
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse)]
    until: Option<Timestamp>,

    /// Only calls with this status.
    #[arg(long, value_enum)]
    status: Option<CallStatusFilter>,

    /// Only the last N of them.
    #[arg(long, value_name = "N")]
    last: Option<u64>,

    /// Show the changes of files during each call, as `acetate tool show` does.
    #[arg(long)]
    changes: bool,

    /// Print a JSON object for each call, with parameters, result and error.
    #[arg(long)]
    json: bool,
}

/// `--status`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum CallStatusFilter {
    Pending,
    Success,
    Error,
}

impl From<CallStatusFilter> for CallStatus {
    fn from(status: CallStatusFilter) -> Self {
        match status {
            CallStatusFilter::Pending => Self::Pending,
            CallStatusFilter::Success => Self::Success,
            CallStatusFilter::Error => Self::Error,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let filter = CallFilter {
        name: args.name.clone(),
        since: args.since.map(Timestamp::as_second),
        until: args.until.map(Timestamp::as_second),
        status: args.status.map(CallStatus::from),
        last: args.last,
    };
    let calls = ToolCalls::open(&args.session, AgentAccess::Read)?;
    let rows = calls.list(&filter)?;
    let width = rows.last().map_or(1, |call| call.id.to_string().len());
    let changes = if args.changes { Some(calls.changes(&rows)?) } else { None };
    let mut out = Out::new();
    for row in &rows {
        let changes = changes.as_ref().map(|changes| changes.during(row)).transpose()?;
        if args.json {
            // One transaction per call: a slow reader of stdout does not keep a snapshot open.
            if let Some(call) = calls.get(row.id)? {
                out.json(call::json(&call, changes.as_deref()))?;
            }
            continue;
        }
        out.line(format_args!("{}", call::line(row, width)))?;
        for line in call::change_lines(&changes.unwrap_or_default()) {
            out.line(format_args!("{:width$}   {line}", ""))?;
        }
    }
    out.end()?;
    Ok(Ending::Done)
}
