//! `acetate mkdir`: directories in the merged tree.

use std::ffi::OsString;

use super::change::with_changer;
use super::error::CliError;
use super::output::Out;
use super::source::{Source, paths};
use super::{Ending, text};
use crate::control::{Answer, Meta, Request};

/// Make directories in a session's merged tree.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

    /// Directories in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Make those above them too; one that is there will do.
    #[arg(short, long)]
    parents: bool,

    /// Permissions, as an octal number [default: 755].
    #[arg(short, long, value_name = "MODE", value_parser = text::parse_mode)]
    mode: Option<u32>,

    /// Print a JSON object for each: path, made (how many directories).
    #[arg(long)]
    json: bool,
}

/// Makes the directories.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut out = Out::new();
    let meta = Meta { mode: args.mode, ..Meta::default() };
    with_changer(&args.source.session, args.source.base.as_deref(), |changer| {
        for path in paths(&args.paths)? {
            let parents = args.parents;
            let answer = changer.ask(Request::MakeDir { path: (&path).into(), meta, parents })?;
            let Answer::Objects(made) = answer else { continue };
            if args.json {
                let mut object = text::json("mkdir");
                text::put_path(&mut object, "path", path.as_bytes());
                object.insert("made".to_owned(), made.into());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    Ok(Ending::Done)
}
