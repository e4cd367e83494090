//! `acetate chmod`: changes permissions in the merged tree.

mod change;

use std::ffi::OsString;

use change::ModeChange;

use super::change::{PathResults, with_session_changer};
use super::error::CliError;
use super::output::Out;
use super::source::SessionSource;
use super::tree_paths::TreePaths;
use super::{Ending, text};
use crate::control::{AttrChanges, Request};
use crate::delta::MergedPath;
use crate::inspect::opened::{OpenSession, find};
use crate::inspect::walk::{WalkControl, walk};
use crate::vfs::FileKind;

/// Change the permissions of files and directories of a session's merged tree.
///
/// MODE is an octal number, or as chmod(1) takes it: `u+x`, `go-w`, `a=rX`, several with commas.
/// Without u, g, o or a, all three are meant, whatever the umask is. A number of fewer than five
/// digits does not clear the set-user-ID and set-group-ID bits of a directory. Symbolic links are
/// left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  acetate chmod work.db +x run.sh
  acetate chmod work.db -R u=rwX,go=rX /src")]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// The permissions.
    #[arg(value_name = "MODE", value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,

    /// Paths in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Change directories and their content.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Print a JSON object for each path that was given: path, changed (how many objects got
    /// another mode).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open_warned()?;
    let mut out = Out::new();
    let mut several = PathResults::default();
    with_session_changer(&args.source, |changer| {
        for path in TreePaths::of(&opened).each(&args.paths)? {
            let Some(path) = several.checked(path)? else { continue };
            let changed = modes(args, &opened, &path).and_then(|modes| {
                let count = modes.len();
                for (path, mode) in modes {
                    let meta = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
                    changer.ask(Request::SetMeta { path: (&path).into(), meta })?;
                }
                Ok(count)
            });
            if let (Some(count), true) = (several.take(changed)?, args.json) {
                let mut object = text::json("chmod");
                text::put_path(&mut object, "path", path.as_bytes());
                object.insert("changed".to_owned(), count.into());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    several.end()
}

/// The objects whose mode changes, entries before their directory: the new mode of the directory
/// may deny access to them.
fn modes(
    args: &Args,
    opened: &OpenSession,
    path: &MergedPath,
) -> Result<Vec<(MergedPath, u32)>, CliError> {
    let mut modes = Vec::new();
    opened.with_tree(|view| {
        walk(view, &find(view, path)?, &mut |_, object, _| {
            let attr = object.attr();
            let mode = args.mode.apply(attr.mode, attr.kind == FileKind::Directory);
            if attr.kind != FileKind::Symlink && mode != attr.mode {
                modes.push((object.path().clone(), mode));
            }
            Ok(if args.recursive { WalkControl::Deeper } else { WalkControl::Stop })
        })
    })?;
    modes.reverse();
    Ok(modes)
}
