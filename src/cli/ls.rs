//! `acetate ls`: lists directories of the merged tree.

use std::ffi::OsString;

use super::error::CliError;
use super::object::{self, ColumnWidths};
use super::output::Out;
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, text};
use crate::inspect::opened::find;
use crate::inspect::walk::children;
use crate::overlay::TreeObject;
use crate::vfs::FileKind;

/// List directories of a session's merged tree.
///
/// Shows what a mount would show, hidden names included, in the order of their bytes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Directories or files in the tree [default: .].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// Show layer, mode, links, owner, size and time too.
    #[arg(short, long)]
    long: bool,

    /// Print a JSON object for each entry.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let paths = TreePaths::of(&opened).all_or_here(&args.paths)?;
    let mut out = Out::new();
    let mut first = true;
    for path in &paths {
        let (is_dir, entries) = opened.with_tree(|view| {
            let found = find(view, path)?;
            let is_dir = found.attr().kind == FileKind::Directory;
            let entries = if is_dir {
                children(view, &found)?
                    .into_iter()
                    .map(|(name, child)| (name.to_bytes(), child))
                    .collect()
            } else {
                vec![(path.as_bytes().to_vec().into(), found)]
            };
            Ok((is_dir, entries))
        })?;
        if is_dir && paths.len() > 1 && !args.json {
            if !first {
                out.line(format_args!(""))?;
            }
            out.line(format_args!("{}:", text::name(path.as_bytes())))?;
        }
        first = false;
        print(args, &entries, &mut out)?;
    }
    out.end()?;
    Ok(Ending::Done)
}

fn print(
    args: &Args,
    entries: &[(bytes::Bytes, TreeObject)],
    out: &mut Out,
) -> Result<(), CliError> {
    let columns = ColumnWidths::of(entries.iter().map(|(_, object)| object));
    for (name, object) in entries {
        if args.json {
            out.json(object::json(object))?;
        } else if args.long {
            out.line(format_args!("{}", columns.line(object, &text::name(name))))?;
        } else {
            out.line(format_args!("{}", text::name(name)))?;
        }
    }
    Ok(())
}
