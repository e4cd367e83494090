//! `acetate tree`: draws the merged tree.

use std::ffi::OsString;

use super::error::CliError;
use super::output::{self, Out};
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, FAILED, object, text};
use crate::delta::MergedPath;
use crate::inspect::opened::find;
use crate::inspect::walk::{WalkControl, WalkPosition, walk_past_denied};
use crate::overlay::TreeObject;
use crate::vfs::FileKind;

/// Draw a session's merged tree.
///
/// What is in the session is marked: `+` was made in it, `*` comes from the base.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Where to begin in the tree [default: .].
    #[arg(value_name = "PATH")]
    path: Option<OsString>,

    /// Levels to show.
    #[arg(short = 'L', long, value_name = "LEVELS")]
    depth: Option<usize>,

    /// Show only what is in the session, and the directories that lead there.
    #[arg(long)]
    changed: bool,

    /// Print a JSON object for each object instead: the fields of `acetate ls --json`, and depth
    /// (levels below where it begins).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let mut out = Out::new();
    let (mut directories, mut others, mut closed) = (0u64, 0u64, None);
    let mut denied = Vec::new();
    for path in TreePaths::of(&opened).all_or_here(args.path.as_slice())? {
        opened.with_tree(|view| {
            let from = find(view, &path)?;
            let name = text::name(path.as_bytes());
            // An object with a row has a parent with a row.
            let wanted = |object: &TreeObject| !args.changed || object.row().is_some();
            walk_past_denied(view, &from, &wanted, &mut denied, &mut |child, object, standing| {
                if standing.depth > 0 {
                    match object.attr().kind {
                        FileKind::Directory => directories += 1,
                        _ => others += 1,
                    }
                }
                let target = match object.attr().kind {
                    FileKind::Symlink => view.target(object).ok(),
                    _ => None,
                };
                let target = target.map(|target| format!(" -> {}", text::name(&target)));
                let name = child.map_or_else(|| name.clone(), |name| text::name(name.as_bytes()));
                let target = target.as_deref().unwrap_or_default();
                let printed = if args.json {
                    let mut json = object::json(object);
                    json.insert("depth".to_owned(), standing.depth.into());
                    out.json(json)
                } else {
                    out.line(format_args!("{}", line(standing, object, &name, target)))
                };
                if let Err(error) = printed {
                    closed = Some(error);
                    return Ok(WalkControl::Stop);
                }
                let is_deep = args.depth.is_some_and(|depth| standing.depth >= depth);
                Ok(if is_deep { WalkControl::Past } else { WalkControl::Deeper })
            })
        })?;
    }
    if let Some(error) = closed {
        return Err(error);
    }
    if !args.json {
        let directories = text::count(directories, "directory");
        out.line(format_args!(""))?;
        out.line(format_args!("{directories}, {}", text::count(others, "file")))?;
    }
    out.end()?;
    output::tell_of_denied(&denied, "shown");
    Ok(if denied.is_empty() { Ending::Done } else { Ending::Exit(FAILED) })
}

/// The line of an object, with the branches that lead to it.
fn line(standing: WalkPosition<'_>, object: &TreeObject, name: &str, target: &str) -> String {
    let is_root = *object.path() == MergedPath::root();
    let mark = match object::layer(object) {
        // Every session has the root.
        _ if is_root => "",
        "session" => " +",
        "copied" => " *",
        _ => "",
    };
    let mut line = String::new();
    if let Some((own, above)) = standing.is_last.split_last() {
        for is_last in above {
            line.push_str(if *is_last { "    " } else { "│   " });
        }
        line.push_str(if *own { "└── " } else { "├── " });
    }
    line + name + target + mark
}
