//! `acetate find`: searches the merged tree.

use std::ffi::OsString;

use clap::ValueEnum;
use jiff::Timestamp;

use super::error::CliError;
use super::output::{self, Out};
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, FAILED, object, text};
use crate::inspect::find::{FindCriteria, FindPattern, find_all};
use crate::inspect::opened::find;
use crate::vfs::FileKind;

/// Find objects in a session's merged tree.
///
/// Prints the paths of objects that meet all conditions. Exits with 1 if there are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Where to look in the tree [default: .].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// The name matches this glob.
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,

    /// The path matches this glob; `**` stands for any directories.
    #[arg(long, value_name = "GLOB")]
    path: Option<String>,

    /// It is of this type; may be given several times.
    #[arg(long, value_enum, value_name = "TYPE")]
    r#type: Vec<ObjectType>,

    /// It is in the session: made there, or changed there.
    #[arg(long)]
    changed: bool,

    /// It is a file with more bytes than this: 500MB, 2GiB or 4096.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    larger: Option<u64>,

    /// Its content changed after this moment: 2026-11-21T12:00:00Z, or an age such as 2h30m.
    #[arg(long, value_name = "WHEN", value_parser = super::time_args::parse)]
    newer: Option<Timestamp>,

    /// Print a JSON object for each.
    #[arg(long)]
    json: bool,
}

/// `--type`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ObjectType {
    #[value(name = "file", alias = "f")]
    File,
    #[value(name = "directory", alias = "d")]
    Directory,
    #[value(name = "symlink", alias = "l")]
    Symlink,
    #[value(name = "special", help = "fifo, socket or device")]
    Special,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let wanted = wanted(args)?;
    let opened = args.source.open()?;
    let mut out = Out::new();
    let (mut found_any, mut closed, mut denied) = (false, None, Vec::new());
    for path in TreePaths::of(&opened).all_or_here(&args.paths)? {
        opened.with_tree(|view| {
            let past = find_all(view, &find(view, &path)?, &wanted, &mut |object| {
                found_any = true;
                let printed = match args.json {
                    true => out.json(object::json(object)),
                    false => out.line(format_args!("{}", text::name(object.path().as_bytes()))),
                };
                closed = printed.err();
                closed.is_none()
            })?;
            denied.extend(past);
            Ok(())
        })?;
        if let Some(error) = closed.take() {
            return Err(error);
        }
    }
    out.end()?;
    output::tell_of_denied(&denied, "searched");
    Ok(match (denied.is_empty(), found_any) {
        (false, _) => Ending::Exit(FAILED),
        (true, true) => Ending::Done,
        (true, false) => Ending::Findings,
    })
}

fn wanted(args: &Args) -> Result<FindCriteria, CliError> {
    let pattern = |text: &Option<String>| text.as_deref().map(FindPattern::new).transpose();
    let kinds = args.r#type.iter().flat_map(|kind| match kind {
        ObjectType::File => &[FileKind::Regular][..],
        ObjectType::Directory => &[FileKind::Directory],
        ObjectType::Symlink => &[FileKind::Symlink],
        ObjectType::Special => {
            &[FileKind::Fifo, FileKind::Socket, FileKind::Block, FileKind::Character]
        }
    });
    Ok(FindCriteria {
        name: pattern(&args.name)?,
        path: pattern(&args.path)?,
        kinds: kinds.copied().collect(),
        in_session: args.changed,
        larger_than: args.larger,
        newer_than: args.newer.map(super::time_args::time),
    })
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, such as 500MB, 2GiB or 4096".to_owned();
    crate::config::parse_bytes(text).ok_or_else(expected)
}
