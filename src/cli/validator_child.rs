//! `acetate validator-child`: a child process of a server that checks content against schemas.

use std::io;
use std::time::Duration;

use super::Ending;
use super::error::CliError;
use crate::validation::serve_validator;

/// Check content against JSON Schemas for the server that started this process.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The most address space of this process, in bytes.
    #[arg(value_name = "BYTES")]
    memory: u64,

    /// The most processor time for each content, in milliseconds.
    #[arg(value_name = "MILLISECONDS")]
    time: u64,
}

/// Checks content until stdin ends.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let time = Duration::from_millis(args.time);
    // `Stdout` is line-buffered, and replies are not lines: the callee flushes each of them.
    serve_validator(args.memory, time, io::stdin().lock(), io::stdout().lock())
        .map_err(|error| CliError::caused("cannot check content", &error))?;
    Ok(Ending::Done)
}
