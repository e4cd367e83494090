//! `acetate touch`: sets times in the merged tree, or creates empty files.

use std::ffi::OsString;

use jiff::Timestamp;

use super::change::{PathResults, with_session_changer};
use super::error::CliError;
use super::links::followed;
use super::operands::kind;
use super::output::Out;
use super::source::SessionSource;
use super::tree_paths::{TreePaths, has_slash, not_a_directory};
use super::{Ending, text, time_args};
use crate::control::{AttrChanges, Reading, Request, WriteHow};

/// Set times in a session's merged tree, or make empty files.
///
/// Without -a and -m, both times are set. Symbolic links are followed within the tree.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  acetate touch work.db new.txt
  acetate touch work.db -d 'yesterday 14:00' notes.txt")]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Paths in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Do not make files.
    #[arg(short = 'c', long)]
    no_create: bool,

    /// Set the times of symbolic links themselves.
    #[arg(long)]
    no_dereference: bool,

    /// Set the time of the last read.
    #[arg(short = 'a', long)]
    access: bool,

    /// Set the time of the last change of content.
    #[arg(short = 'm', long)]
    modification: bool,

    /// Set this time instead of now.
    #[arg(short, long, value_name = "WHEN", value_parser = time_args::parse)]
    date: Option<Timestamp>,

    /// Print a JSON object for each: path, made (whether it was not there).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let time = time_args::time(args.date.unwrap_or_else(Timestamp::now));
    let time = Some((time.secs, time.nanos));
    let both = args.access == args.modification;
    let meta = AttrChanges {
        atime: time.filter(|_| both || args.access),
        mtime: time.filter(|_| both || args.modification),
        ..AttrChanges::default()
    };
    let opened = args.source.open_warned()?;
    let mut out = Out::new();
    let mut several = PathResults::default();
    with_session_changer(&args.source, |changer| {
        let paths = TreePaths::of(&opened).each(&args.paths)?;
        for (path, given) in paths.into_iter().zip(&args.paths) {
            let path = path.and_then(|path| match args.no_dereference {
                true => Ok(path),
                false => followed(&opened, &path),
            });
            let Some(path) = several.checked(path)? else { continue };
            let is_there = kind(&opened, &path)?.is_some();
            if !is_there && args.no_create {
                continue;
            }
            if !is_there && has_slash(given) {
                several.take::<()>(Err(not_a_directory(&path)))?;
                continue;
            }
            let request = |path| match is_there {
                true => Request::SetMeta { path, meta },
                false => Request::Write { path, how: WriteHow::New, meta },
            };
            let request = request((&path).into());
            let done = match is_there {
                true => changer.ask(request),
                false => changer.ask_with(request, Reading::stream(std::io::empty())),
            };
            if several.take(done)?.is_some() && args.json {
                let mut object = text::json("touch");
                text::put_path(&mut object, "path", path.as_bytes());
                object.insert("made".to_owned(), (!is_there).into());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    several.end()
}
