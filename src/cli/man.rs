//! `acetate man`: manual pages.

use std::path::PathBuf;

use clap::CommandFactory;

use super::error::CliError;
use super::{Cli, Ending, output};

/// Write a manual page for each command into a directory.
///
/// `man -l DIR/acetate.1` shows one; where all find them is /usr/local/share/man/man1.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory; it is made if need be, and pages in it are replaced.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes the pages.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let failed = |error: std::io::Error| CliError::caused(args.dir.display(), &error);
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)?;
    output::line(format_args!("wrote the manual pages to {}", args.dir.display()));
    Ok(Ending::Done)
}
