//! `acetate exports`: the exports of a running server, changed at once.

mod add;
mod keep;
mod ls;
mod rm;

use super::Ending;
use super::error::CliError;

/// Add, remove, list and keep exports of `acetate serve --config`.
///
/// A server that runs takes a change at once. Each export that is added has a file of its own in
/// the directory exports.d beside the exports file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ExportsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ExportsCommand {
    Add(add::Args),
    Rm(rm::Args),
    Ls(ls::Args),
    Keep(keep::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        ExportsCommand::Add(args) => add::run(args),
        ExportsCommand::Rm(args) => rm::run(args),
        ExportsCommand::Ls(args) => ls::run(args),
        ExportsCommand::Keep(args) => keep::run(args),
    }
}
