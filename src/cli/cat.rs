//! `acetate cat`: the content of files of the merged tree.

use std::ffi::OsString;

use super::change::PathResults;
use super::error::CliError;
use super::output::{self, Out};
use super::source::PastSource;
use super::tree_paths::TreePaths;
use super::{Ending, text};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::find;
use crate::vfs::{FileKind, FsError};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The most bytes of holes in a file that are printed as zeros without `--holes`: one SETATTR can
/// make a file of 2^62 bytes.
pub(super) const MAX_HOLE_BYTES: u64 = 1 << 30;

/// Print the content of files of a session's merged tree.
///
/// Holes are zeros. A file with more than 1 GiB of them is left out, with exit code 1, unless
/// --holes is given.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Files in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Print all zeros of files with more than 1 GiB of holes too.
    #[arg(long)]
    holes: bool,
}

/// Prints the files one after another.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let (mut out, mut ending) = (Out::new(), Ending::Done);
    let mut several = PathResults::default();
    for path in TreePaths::of(&opened).each(&args.paths)? {
        let Some(path) = several.checked(path)? else { continue };
        let mut gone = None;
        let read = opened.with_tree(|view| {
            let file = find(view, &path)?;
            match file.attr().kind {
                FileKind::Directory => return Err(InspectError::at(&path, FsError::IsDirectory)),
                FileKind::Regular => {}
                kind => {
                    let (path, kind) = (text::name(path.as_bytes()), text::kind(kind));
                    return Err(InspectError::Invalid { what: format!("{path}: is a {kind}") });
                }
            }
            let failed = |source| InspectError::Path { path: MergedPath::clone(&path), source };
            let holes = file.attr().size.saturating_sub(view.data_bytes(&file).map_err(failed)?);
            if holes > MAX_HOLE_BYTES && !args.holes && file.attr().kind == FileKind::Regular {
                let (path, holes) = (text::name(path.as_bytes()), text::bytes(holes));
                output::line(format_args!("left out: {path}: has {holes} of holes"));
                let hint = "--holes prints them as zeros; `acetate cp` and `export` keep holes";
                output::line(format_args!("hint: {hint}"));
                ending = Ending::Findings;
                return Ok(());
            }
            let mut buffer = vec![0; PIECE_BYTES];
            let mut offset = 0;
            loop {
                let got = view.read(&file, offset, &mut buffer).map_err(failed)?;
                if let Err(error) = out.bytes(&buffer[..got]) {
                    gone = Some(error);
                    return Ok(());
                }
                offset += got as u64;
                if got < buffer.len() {
                    return Ok(());
                }
            }
        });
        several.take(read.map_err(|error| CliError::from(error).about_path()))?;
        if let Some(error) = gone {
            return Err(error);
        }
    }
    out.end()?;
    Ok(if several.end()? == Ending::Done { ending } else { Ending::Findings })
}
