//! `acetate tool`: the tool calls of an agent, in a session.

mod call;
mod ls;
mod record;
mod run;
mod show;
mod stats;

use super::Ending;
use super::error::CliError;

/// Record and show the tool calls of an agent in a session.
///
/// Calls are recorded once, when they have ended, and never change. The session may be served at
/// the same time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ToolCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ToolCommand {
    Record(record::Args),
    Run(run::Args),
    Ls(ls::Args),
    Show(show::Args),
    Stats(stats::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        ToolCommand::Record(args) => record::run(args),
        ToolCommand::Run(args) => run::run(args),
        ToolCommand::Ls(args) => ls::run(args),
        ToolCommand::Show(args) => show::run(args),
        ToolCommand::Stats(args) => stats::run(args),
    }
}
