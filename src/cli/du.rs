//! `acetate du`: shows the disk usage of trees, and the session's share of it.

use std::ffi::OsString;

use super::error::CliError;
use super::output::{self, Out};
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, FAILED, text};
use crate::delta::MergedPath;
use crate::inspect::opened::find;
use crate::inspect::usage::{DiskUsage, usage};
use crate::vfs::FileKind;

/// Show how much space directories of a session take.
///
/// For each directory: its size in all, and how much of that is in the session. A file with
/// several names counts once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Where to begin in the tree [default: .].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// Levels to show; all are counted.
    #[arg(short, long, value_name = "LEVELS", default_value_t = 1)]
    depth: usize,

    /// Show exact bytes.
    #[arg(short, long)]
    bytes: bool,

    /// Print a JSON object for each: path, objects, size, used, session.
    #[arg(long)]
    json: bool,
}

/// Runs the command: prints each directory after its subdirectories.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let (mut out, mut denied) = (Out::new(), Vec::new());
    for path in TreePaths::of(&opened).all_or_here(&args.paths)? {
        let mut rows: Vec<(MergedPath, DiskUsage)> = Vec::new();
        opened.with_tree(|view| {
            let from = find(view, &path)?;
            let total = usage(view, &from, &mut denied, &mut |dir, depth, sum| {
                if depth <= args.depth {
                    rows.push((dir.path().clone(), sum));
                }
            })?;
            if from.attr().kind != FileKind::Directory {
                rows.push((path.clone(), total));
            }
            Ok(())
        })?;
        for (path, sum) in rows {
            print(args, &path, &sum, &mut out)?;
        }
    }
    out.end()?;
    output::tell_of_denied(&denied, "counted");
    Ok(if denied.is_empty() { Ending::Done } else { Ending::Exit(FAILED) })
}

fn print(args: &Args, path: &MergedPath, sum: &DiskUsage, out: &mut Out) -> Result<(), CliError> {
    if args.json {
        let mut json = text::json("usage");
        text::put_path(&mut json, "path", path.as_bytes());
        for (key, value) in [
            ("objects", sum.objects),
            ("size", sum.size),
            ("used", sum.used),
            ("session", sum.session),
        ] {
            json.insert(key.to_owned(), value.into());
        }
        return out.json(json);
    }
    let show = |bytes: u64| if args.bytes { bytes.to_string() } else { text::bytes(bytes) };
    let (used, session) = (show(sum.used), show(sum.session));
    out.line(format_args!("{used:>12} {session:>12} {}", text::name(path.as_bytes())))
}
