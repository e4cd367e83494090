//! `acetate cat`: the content of files of the merged tree.

use std::ffi::OsString;

use super::Ending;
use super::error::CliError;
use super::output::Out;
use super::source::{Source, paths};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::find;

/// How much is read at a time, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Print the content of files of a session's merged tree.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

    /// Files in the tree.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Prints one file after another.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let mut out = Out::new();
    for path in paths(&args.paths)? {
        let mut gone = None;
        opened.look(|view| {
            let file = find(view, &path)?;
            let failed = |source| InspectError::Path { path: MergedPath::clone(&path), source };
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
        })?;
        if let Some(error) = gone {
            return Err(error);
        }
    }
    out.end()?;
    Ok(Ending::Done)
}
