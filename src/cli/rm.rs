//! `acetate rm`: takes things out of the merged tree.

use std::ffi::OsString;

use super::change::with_changer;
use super::error::CliError;
use super::output::Out;
use super::source::{Source, paths};
use super::{Ending, text};
use crate::control::{Answer, Request};

/// Remove files and directories from a session's merged tree.
///
/// The base keeps what it has: in the session it is gone. `acetate discard` undoes that.
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
    let mut out = Out::new();
    with_changer(&args.source.session, args.source.base.as_deref(), |changer| {
        for path in paths(&args.paths)? {
            let recursive = args.recursive;
            let answer = changer.ask(Request::Remove { path: (&path).into(), recursive })?;
            let Answer::Objects(removed) = answer else { continue };
            if args.json {
                let mut object = text::json("rm");
                text::put_path(&mut object, "path", path.as_bytes());
                object.insert("removed".to_owned(), removed.into());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    Ok(Ending::Done)
}
