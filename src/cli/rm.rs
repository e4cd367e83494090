//! `acetate rm`: removes files and directories from the merged tree.

use std::ffi::OsString;
use std::io::IsTerminal;

use super::change::ask_for_each;
use super::error::CliError;
use super::output::ProgressLine;
use super::source::SessionSource;
use super::{Ending, text};
use crate::control::{Answer, Request};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::OpenSession;
use crate::vfs::FsError;

/// Remove files and directories from a session's merged tree.
///
/// The base is not changed. `acetate discard` brings the paths back. If a path cannot be removed,
/// the others still are, and the exit code is 1; 2 if all failed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// What to remove from the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Remove directories with their content.
    #[arg(short, long)]
    recursive: bool,

    /// Say nothing about paths that are not there.
    #[arg(short, long)]
    force: bool,

    /// Print a JSON object for each: path, removed (how many objects).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (by_turns, json) = (args.recursive, args.json.then_some(("rm", "removed")));
    let is_shown = !args.json && std::io::stderr().is_terminal();
    let (mut progress, mut all) = (ProgressLine::new("removing", is_shown), 0);
    let opened = args.force.then(|| args.source.open()).transpose()?;
    let ended = ask_for_each(&args.source, &args.paths, json, |changer, path| {
        if let Some(opened) = &opened
            && is_free(opened, path)?
        {
            return Ok(Answer::Objects(0));
        }
        let request = Request::Remove { path: path.into(), recursive: args.recursive, by_turns };
        let mut objects = 0;
        loop {
            let answer = changer.ask(request.clone()).inspect_err(|_| progress.end())?;
            let some = match answer {
                Answer::SomeObjects(some) => some,
                Answer::Objects(last) => return Ok(Answer::Objects(objects + last)),
                answer => return Ok(answer),
            };
            objects += some;
            all += some;
            progress.say(|| text::count(all, "object"));
        }
    });
    progress.end();
    ended
}

/// Whether nothing is at a path.
fn is_free(opened: &OpenSession, path: &MergedPath) -> Result<bool, CliError> {
    let found = opened.with_tree(|view| match view.find(path) {
        Err(FsError::NotDirectory) => Ok(None),
        found => found.map_err(|source| InspectError::at(path, source)),
    });
    Ok(found?.is_none())
}
