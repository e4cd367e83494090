//! `acetate cp`: copies files into, out of and within the merged tree.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::PathBuf;

use super::change::with_session_changer;
use super::copying::{CopyPath, CopyReport, Copying, SourceArg};
use super::error::CliError;
use super::operands::OperandPaths;
use super::output::{self, Out, ProgressLine};
use super::tree_paths::{TreePaths, has_slash};
use super::{Ending, text};
use crate::inspect::apply::check_finished;

/// Copy files into, out of, or within a session's merged tree.
///
/// A path that begins with a colon is in the tree (`:/src`, `:notes.txt`), any other on this
/// machine. Permissions and times of the last change are kept, and holes into and out of the tree;
/// what leaves the tree has no set-user-ID and no set-group-ID bit. If the target is a directory,
/// the copy goes into it under its own name; existing files get the new content. `dir/.` is the
/// content of a directory. If a source cannot be copied, the others still are. Exits with 1 if
/// something was left out: special files, files that are too large for their new place, and within
/// the tree files with more than 1 GiB of holes, which would be zeros.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  acetate cp work.db notes.txt :/docs/       into the tree
  acetate cp work.db -r :/src ./src-copy     out of it
  acetate cp work.db :/a :/b                 within it")]
pub(super) struct Args {
    #[command(flatten)]
    paths: OperandPaths,

    /// Copy directories with their content.
    #[arg(short, long)]
    recursive: bool,

    /// Print a JSON object: objects, bytes, skipped.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (to, from) = args.paths.split()?;
    let opened = args.paths.source.open()?;
    let paths = TreePaths::of(&opened);
    let is_slashed = has_slash(to);
    let to = place(&paths, to)?;
    let from = from.iter().map(|path| named(&paths, path)).collect::<Result<Vec<_>, _>>()?;
    let is_outside = |place: &CopyPath| matches!(place, CopyPath::Host(_));
    if is_outside(&to) && from.iter().any(|named| is_outside(&named.place)) {
        return Err(CliError::new("both sides are on this machine")
            .with_hint("a colon before a path puts it into the tree: :/docs"));
    }
    if from.iter().any(|named| !is_outside(&named.place)) {
        check_finished(&opened)?;
    }
    let progress = ProgressLine::new("copying", std::io::stderr().is_terminal());
    let (copied, several) = match to {
        CopyPath::Host(_) => {
            Copying::new(&opened, None, args.recursive, progress).all(&from, (&to, is_slashed))?
        }
        CopyPath::Tree(_) => with_session_changer(&args.paths.source, |changer| {
            Copying::new(&opened, Some(changer), args.recursive, progress)
                .all(&from, (&to, is_slashed))
        })?,
    };
    let shown = show(args, &copied)?;
    Ok(if several.end()? == Ending::Done { shown } else { Ending::Findings })
}

fn show(args: &Args, copied: &CopyReport) -> Result<Ending, CliError> {
    for skipped in &copied.skipped {
        output::line(format_args!("left out: {skipped}"));
    }
    if args.json {
        let mut out = Out::new();
        let mut object = text::json("cp");
        object.insert("objects".to_owned(), copied.objects.into());
        object.insert("bytes".to_owned(), copied.bytes.into());
        object.insert("skipped".to_owned(), copied.skipped.len().into());
        out.json(object)?;
        out.end()?;
    }
    Ok(if copied.skipped.is_empty() { Ending::Done } else { Ending::Findings })
}

/// Parses a source.
fn named(paths: &TreePaths, path: &OsStr) -> Result<SourceArg, CliError> {
    use std::os::unix::ffi::OsStrExt;
    let inside = path.as_bytes().strip_prefix(b":").unwrap_or(path.as_bytes());
    let is_content = inside == b"." || inside.ends_with(b"/.");
    Ok(SourceArg { place: place(paths, path)?, is_content })
}

/// Parses a path: in the tree after a colon, otherwise on this machine.
fn place(paths: &TreePaths, path: &OsStr) -> Result<CopyPath, CliError> {
    use std::os::unix::ffi::OsStrExt;
    match path.as_bytes().strip_prefix(b":") {
        Some(inside) => Ok(CopyPath::Tree(paths.one(OsStr::from_bytes(inside))?)),
        None => Ok(CopyPath::Host(PathBuf::from(path))),
    }
}
