//! `acetate ln`: creates links in the merged tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::change::{PathResults, SessionChanger, with_session_changer};
use super::error::CliError;
use super::operands::{LastOperand, OperandPaths, kind};
use super::output::Out;
use super::tree_paths::{TreePaths, has_slash};
use super::{Ending, text};
use crate::control::{Answer, AttrChanges, PathText, Request};
use crate::delta::MergedPath;
use crate::inspect::opened::OpenSession;
use crate::vfs::{FileKind, Name};

/// Make links in a session's merged tree.
///
/// Without -s: another name for a file. With -s: a symbolic link, whose target is stored as it was
/// given and need not be there. If the last path is a directory, links go into it under their
/// targets' names.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  acetate ln work.db notes.txt again.txt     another name for a file
  acetate ln work.db -s ../lib/a.so /bin/a   a symbolic link")]
pub(super) struct Args {
    #[command(flatten)]
    paths: OperandPaths,

    /// Make symbolic links.
    #[arg(short, long)]
    symbolic: bool,

    /// Replace existing files and links.
    #[arg(short, long)]
    force: bool,

    /// Print a JSON object for each: path, target.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (to, targets) = args.paths.split()?;
    let opened = args.paths.source.open_warned()?;
    let paths = TreePaths::of(&opened);
    let place = LastOperand::of(&opened, (paths.one(to)?, has_slash(to)), targets.len())?;
    let mut out = Out::new();
    let mut several = PathResults::default();
    let source = &args.paths.source;
    with_session_changer(source, |changer| {
        for target in targets {
            let made = link(args, changer, &opened, &place, (&paths, target));
            if let (Some(path), true) = (several.take(made)?, args.json) {
                let mut object = text::json("ln");
                text::put_path(&mut object, "path", path.as_bytes());
                text::put_path(&mut object, "target", target.as_bytes());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    several.end()
}

/// Creates one link; returns its path.
fn link(
    args: &Args,
    changer: &mut SessionChanger,
    opened: &OpenSession,
    place: &LastOperand,
    (paths, target): (&TreePaths, &OsStr),
) -> Result<MergedPath, CliError> {
    place.check_link()?;
    let bytes = target.as_bytes();
    // The target of a symbolic link need not be a path of the tree; only its last component counts.
    let last = bytes.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    let named = match args.symbolic {
        false => paths.one(target)?,
        true => {
            let name = last.and_then(|name| Name::new(name).ok());
            name.map_or_else(MergedPath::root, |name| MergedPath::root().join(&name))
        }
    };
    let path = place.for_source(&named);
    if args.force && kind(opened, &path)?.is_some_and(|kind| kind != FileKind::Directory) {
        if !args.symbolic && path == named {
            let what = format!("{}: is the file itself", text::name(path.as_bytes()));
            return Err(CliError::new(what).about_path());
        }
        let _removed: Answer = changer.ask(Request::Remove {
            path: (&path).into(),
            recursive: false,
            by_turns: false,
        })?;
    }
    let request = match args.symbolic {
        true => Request::MakeLink {
            path: (&path).into(),
            target: PathText::from(bytes),
            meta: AttrChanges::default(),
        },
        false => Request::Link { from: (&named).into(), to: (&path).into() },
    };
    changer.ask(request)?;
    Ok(path)
}
