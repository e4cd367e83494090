//! `acetate stat`: shows the attributes of objects of the merged tree.

use std::ffi::OsString;

use super::error::CliError;
use super::output::Out;
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, object, text};
use crate::inspect::InspectError;
use crate::inspect::opened::find;
use crate::overlay::TreeObject;
use crate::vfs::FileKind;

/// Show everything about objects of a session's merged tree.
///
/// The layer is `base` (untouched), `copied` (from the base, changed in the session) or
/// `session` (made there). Symbolic links are shown, not followed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Objects in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Print a JSON object for each.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let mut out = Out::new();
    for path in TreePaths::of(&opened).all(&args.paths)? {
        let (found, target) = opened.with_tree(|view| {
            let found = find(view, &path)?;
            let target = match found.attr().kind {
                FileKind::Symlink => {
                    let target = view.target(&found);
                    Some(
                        target
                            .map_err(|source| InspectError::Path { path: path.clone(), source })?,
                    )
                }
                _ => None,
            };
            Ok((found, target))
        })?;
        if args.json {
            let mut json = object::json(&found);
            if let Some(target) = &target {
                text::put_path(&mut json, "target", target);
            }
            out.json(json)?;
        } else {
            print(&found, target.as_deref(), &mut out)?;
        }
    }
    out.end()?;
    Ok(Ending::Done)
}

fn print(found: &TreeObject, target: Option<&[u8]>, out: &mut Out) -> Result<(), CliError> {
    let attr = found.attr();
    let name = text::name(found.path().as_bytes());
    match target {
        Some(target) => out.line(format_args!("{name} -> {}", text::name(target)))?,
        None => out.line(format_args!("{name}"))?,
    }
    let mut field = |name: &str, value: &str| out.line(format_args!("  {name:<8}{value}"));
    field("kind", text::kind(attr.kind))?;
    field("layer", object::layer(found))?;
    if let Some(origin) = found.origin() {
        field("origin", &text::name(origin.path.as_bytes()))?;
    }
    field("mode", &format!("{:04o} {}", attr.mode, text::mode(attr)))?;
    field("owner", &format!("{}:{}", attr.uid, attr.gid))?;
    field("links", &attr.nlink.to_string())?;
    field("size", &format!("{}, {} on disk", text::count(attr.size, "byte"), attr.used))?;
    if matches!(attr.kind, FileKind::Block | FileKind::Character) {
        field("device", &format!("{}, {}", attr.rdev.major, attr.rdev.minor))?;
    }
    field("number", &attr.fileid.0.to_string())?;
    field("atime", &text::time(attr.atime))?;
    field("mtime", &text::time(attr.mtime))?;
    field("ctime", &text::time(attr.ctime))
}
