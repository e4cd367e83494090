//! `acetate mcp`: serves a session to an agent by the Model Context Protocol, over stdin and
//! stdout.

mod changing;
mod history;
mod keys;
mod limits;
mod message_id;
mod reading;
mod resources;
mod results;
mod serving;
mod session;
mod tools;
mod transport;

use super::Ending;
use super::error::CliError;
use super::source::SessionSource;
use crate::delta::sqlite::AgentAccess;
use crate::inspect::tool::ToolCalls;
use session::McpSession;

/// Let an agent use a session through the Model Context Protocol, on stdin and stdout.
///
/// An agent's host starts this command. The agent gets tools to read, search and compare the merged
/// tree, and to read checkpoints, keys and the log; with --allow-changes also to change files and
/// keys, to make checkpoints, and to go back to one. Each call that changes something begins with a
/// checkpoint, unless nothing changed since the newest, and is recorded as a tool call. The session
/// may be served at the same time, also by further `acetate mcp`. The command ends with its input.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Allow the tools that change the session.
    #[arg(long)]
    allow_changes: bool,

    /// Only these tools: read_file, search...; several with commas.
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    tools: Vec<String>,
}

/// The names of all tools.
pub(super) fn tool_names() -> impl Iterator<Item = &'static str> {
    tools::all().into_iter().map(|tool| tool.name)
}

/// Serves until the input ends.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let chosen = tools::choose(&args.tools, args.allow_changes)?;
    // A session or base that cannot be opened is told before a client waits.
    drop(args.source.open_warned()?);
    if args.allow_changes {
        ToolCalls::open(&args.source.session, AgentAccess::Write)?.require_writable()?;
    }
    serving::serve(McpSession::new(args.source.clone(), args.allow_changes, chosen))?;
    Ok(Ending::Done)
}
