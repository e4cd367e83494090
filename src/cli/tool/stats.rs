//! `acetate tool stats`: shows statistics of the calls of each tool.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::call::duration;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, text};
use crate::delta::sqlite::{AgentAccess, CallStats};
use crate::inspect::tool::ToolCalls;

/// Show for each tool how often it was called, how often it failed, and how long it took.
///
/// The most frequent tool comes first. Durations are of the calls that have ended.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Print a JSON object for each tool.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let stats = ToolCalls::open(&args.session, AgentAccess::Read)?.stats()?;
    let mut out = Out::new();
    if !args.json && !stats.is_empty() {
        line(&mut out, ["calls", "errors", "total", "mean", "max"].map(str::to_owned), "tool")?;
    }
    for tool in &stats {
        if args.json {
            out.json(json(tool))?;
            continue;
        }
        let columns = [
            tool.calls.to_string(),
            tool.errors.to_string(),
            duration(Some(tool.total_ms)),
            duration(tool.mean_ms.map(|mean| mean.round() as i64)),
            duration(tool.max_ms),
        ];
        line(&mut out, columns, &text::name(&tool.name))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

fn line(out: &mut Out, columns: [String; 5], name: &str) -> Result<(), CliError> {
    let [calls, errors, total, mean, max] = columns;
    out.line(format_args!("{calls:>7} {errors:>7} {total:>9} {mean:>9} {max:>9} {name}"))
}

fn json(tool: &CallStats) -> Map<String, Value> {
    let mut object = text::json("tool_stats");
    text::put_path(&mut object, "name", &tool.name);
    object.insert("calls".to_owned(), tool.calls.into());
    object.insert("errors".to_owned(), tool.errors.into());
    object.insert("pending".to_owned(), tool.pending.into());
    object.insert("total_ms".to_owned(), tool.total_ms.into());
    object.insert("mean_ms".to_owned(), tool.mean_ms.into());
    object.insert("max_ms".to_owned(), tool.max_ms.into());
    object
}
