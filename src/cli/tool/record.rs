//! `acetate tool record`: records a tool call that has ended.

use std::path::PathBuf;

use jiff::Timestamp;

use super::call;
use crate::cli::error::CliError;
use crate::cli::{Ending, agent_values, output, time_args};
use crate::delta::sqlite::{AgentAccess, NewCall};
use crate::inspect::tool::ToolCalls;

/// Record a tool call that has ended; prints its number.
///
/// Times are kept in whole seconds, as the specification has them.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("outcome").required(true).args(["result", "error"])))]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The tool's name.
    #[arg(value_name = "TOOL")]
    name: String,

    /// What the tool was given, in JSON; `-` reads it from stdin.
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    parameters: Option<String>,

    /// What it returned, in JSON; `-` reads it from stdin.
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    result: Option<String>,

    /// Why it failed.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    error: Option<String>,

    /// When it began: 2026-11-21T12:00:00Z, or an age such as 90s [default: when it ended].
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse)]
    started: Option<Timestamp>,

    /// When it ended [default: now].
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse)]
    completed: Option<Timestamp>,

    /// Print the call as a JSON object instead.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let completed = args.completed.unwrap_or_else(Timestamp::now);
    let started = args.started.unwrap_or(completed);
    if completed < started {
        let what = format!("the call cannot end ({completed}) before it began ({started})");
        return Err(CliError::new(what).with_hint("check --started and --completed"));
    }
    let both = [&args.parameters, &args.result].map(|text| text.as_deref() == Some("-"));
    if both == [true, true] {
        return Err(CliError::new("--parameters and --result cannot both be read from stdin")
            .with_hint("give one of them as an argument"));
    }
    let parameters = args.parameters.as_deref().map(agent_values::read_argument).transpose()?;
    let result = args.result.as_deref().map(agent_values::read_argument).transpose()?;
    let outcome = match (&result, &args.error) {
        (Some(result), _) => Ok(result.as_ref()),
        (None, error) => Err(error.as_deref().unwrap_or_default()),
    };
    let calls = ToolCalls::open(&args.session, AgentAccess::Write)?;
    let id = calls.record(&NewCall {
        name: &args.name,
        parameters: parameters.as_deref(),
        outcome,
        started_at: started.as_second(),
        completed_at: completed.as_second(),
        begin: None,
    })?;
    match calls.get(id)?.filter(|_| args.json) {
        Some(call) => output::json(call::json(&call, None)),
        None => output::data(format_args!("{id}")),
    }
    Ok(Ending::Done)
}
