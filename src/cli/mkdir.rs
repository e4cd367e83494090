//! `acetate mkdir`: creates directories in the merged tree.

use std::ffi::OsString;

use super::change::ask_for_each;
use super::error::CliError;
use super::source::SessionSource;
use super::{Ending, text};
use crate::control::{AttrChanges, Request};

/// Make directories in a session's merged tree.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Directories in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Make the directories above them too; existing ones are no error.
    #[arg(short, long)]
    parents: bool,

    /// Permissions, as an octal number [default: 755].
    #[arg(short, long, value_name = "MODE", value_parser = text::parse_mode)]
    mode: Option<u32>,

    /// Print a JSON object for each: path, made (how many directories).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let meta = AttrChanges { mode: args.mode, ..AttrChanges::default() };
    let (parents, json) = (args.parents, args.json.then_some(("mkdir", "made")));
    ask_for_each(&args.source, &args.paths, json, |changer, path| {
        changer.ask(Request::MakeDir { path: path.into(), meta, parents })
    })
}
