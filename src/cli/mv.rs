//! `acetate mv`: renames files and directories in the merged tree.

use super::change::{PathResults, with_session_changer};
use super::error::CliError;
use super::operands::{LastOperand, OperandPaths};
use super::output::Out;
use super::tree_paths::{TreePaths, has_slash};
use super::{Ending, text};
use crate::control::Request;

/// Rename or move files and directories within a session's merged tree.
///
/// If the target is a directory, they go into it. A file at the new name is replaced, and so is an
/// empty directory by a directory. The base keeps its names.
///
/// If a path cannot be moved, the others still are, and the exit code is 1; 2 if all failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  acetate mv work.db draft.md notes.md       another name
  acetate mv work.db a.txt b.txt /docs       into a directory")]
pub(super) struct Args {
    #[command(flatten)]
    paths: OperandPaths,

    /// Do not replace anything.
    #[arg(short, long)]
    no_clobber: bool,

    /// Print a JSON object for each: path, to.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (to, from) = args.paths.split()?;
    let opened = args.paths.source.open_warned()?;
    let paths = TreePaths::of(&opened);
    let (to, from) = ((paths.one(to)?, has_slash(to)), paths.each(from)?);
    let target = LastOperand::of(&opened, to, from.len())?;
    let mut out = Out::new();
    let mut several = PathResults::default();
    let source = &args.paths.source;
    with_session_changer(source, |changer| {
        for path in from {
            let Some(path) = several.checked(path)? else { continue };
            let to = target.for_source(&path);
            if args.no_clobber && target.is_there(&opened, &to)? {
                continue;
            }
            let checked = check(&path, &to).and_then(|()| target.check_kind(&opened, &path));
            let request = Request::Rename { from: (&path).into(), to: (&to).into() };
            let moved = several.take(checked.and_then(|()| changer.ask(request)))?;
            if moved.is_some() && args.json {
                let mut object = text::json("mv");
                text::put_path(&mut object, "path", path.as_bytes());
                text::put_path(&mut object, "to", to.as_bytes());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    several.end()
}

/// Refuses moves that change nothing, with a clearer message than that of rename(2).
fn check(from: &crate::delta::MergedPath, to: &crate::delta::MergedPath) -> Result<(), CliError> {
    let path = text::name(from.as_bytes());
    match () {
        () if from == to => Err(CliError::new(format!("{path}: already exists")).about_path()),
        () if to.is_within(from) => {
            Err(CliError::new(format!("{path}: cannot be moved into itself")).about_path())
        }
        () => Ok(()),
    }
}
