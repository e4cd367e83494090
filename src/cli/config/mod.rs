//! `acetate config`: checks the exports file of `acetate serve --config`.

mod check;
mod files;
mod host_check;
mod show;

use super::Ending;
use super::error::CliError;

/// Check the exports file of `acetate serve --config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(check::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args),
    }
}
