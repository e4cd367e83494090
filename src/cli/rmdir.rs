//! `acetate rmdir`: removes empty directories from the merged tree.

use std::ffi::OsString;

use super::Ending;
use super::change::ask_for_each;
use super::error::CliError;
use super::source::SessionSource;
use crate::control::Request;

/// Remove empty directories from a session's merged tree.
///
/// If a directory cannot be removed, the others still are, and the exit code is 1; 2 if all failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  acetate rmdir work.db build/tmp")]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Directories in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Print a JSON object for each: path, removed (1).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let json = args.json.then_some(("rmdir", "removed"));
    ask_for_each(&args.source, &args.paths, json, |changer, path| {
        changer.ask(Request::RemoveDir { path: path.into() })
    })
}
