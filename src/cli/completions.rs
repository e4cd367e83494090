//! `acetate completions`: prints a script with which a shell completes command lines.

use std::path::Path;

use clap_complete::Shell;
use clap_complete::env::Shells;

use super::Ending;
use super::completing::VARIABLE;
use super::error::CliError;
use super::output::Out;

/// The command that the script completes.
const PROGRAM: &str = "acetate";

/// Print a script that completes command lines in a shell.
///
/// Completes commands, options and session files; after a session, also paths in its tree, keys,
/// ids of hunks, names of tools and exports. Without a session on the line, it uses
/// $ACETATE_SESSION. For bash, put `source <(acetate completions bash)` into ~/.bashrc; zsh
/// wants it as a file `_acetate` in a directory of its `fpath`, fish as
/// ~/.config/fish/completions/acetate.fish.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let name = args.shell.to_string();
    let failed = |error: std::io::Error| CliError::caused("cannot make the script", &error);
    let shells = Shells::builtins();
    let shell = shells.completer(&name);
    let shell = shell.ok_or_else(|| CliError::new(format_args!("{name}: no such shell")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, PROGRAM, PROGRAM, &completer(), &mut script)
        .map_err(failed)?;
    let mut out = Out::new();
    out.bytes(&script)?;
    out.end()?;
    Ok(Ending::Done)
}

/// The program that the script calls: this executable, unless it was called through PATH.
fn completer() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_name = Path::new(&called).components().count() == 1;
    let program = std::env::current_exe().ok().filter(|_| !is_name);
    program.map_or_else(|| PROGRAM.to_owned(), |path| path.to_string_lossy().into_owned())
}
