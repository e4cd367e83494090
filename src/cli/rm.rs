//! `acetate rm`: takes things out of the merged tree.

use std::ffi::OsString;

use super::Ending;
use super::change::ask_for_each;
use super::error::CliError;
use super::source::Source;
use crate::control::Request;

/// Remove files and directories from a session's merged tree.
///
/// The base keeps what it has: in the session it is gone. `acetate discard` undoes that. If a
/// path cannot be removed, the others still are, and the exit code is 1; 2 if all failed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

    /// What to remove from the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Remove directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,

    /// Print a JSON object for each: path, removed (how many objects).
    #[arg(long)]
    json: bool,
}

/// Removes what was named.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (recursive, json) = (args.recursive, args.json.then_some(("rm", "removed")));
    let request = |path| Request::Remove { path, recursive };
    ask_for_each(&args.source, &args.paths, json, request)
}
