//! `acetate completions`: a script that completes commands and options in a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use super::error::CliError;
use super::output::Out;
use super::{Cli, Ending};

/// Print a script that completes commands and options in a shell.
///
/// For bash, put `source <(acetate completions bash)` into ~/.bashrc; zsh wants it as a file
/// `_acetate` in a directory of its `fpath`, fish as
/// ~/.config/fish/completions/acetate.fish.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    // Into memory first: it would panic where the pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "acetate", &mut script);
    let mut out = Out::new();
    out.bytes(&script)?;
    out.end()?;
    Ok(Ending::Done)
}
