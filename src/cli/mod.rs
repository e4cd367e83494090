//! The command line: parse, run, print, exit.
//!
//! The only place that prints, and the only one that knows clap. Data goes to stdout, all else
//! to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.
//!
//! One file per subcommand; `error` is how failures look.

mod compact;
mod error;
mod init;
mod layers;
mod mount_help;
mod output;
mod serve;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::EnvFilter;

use error::CliError;

const EXAMPLE: &str = "\
Example:
  acetate serve work.db --base ~/project     export ~/project; changes go to work.db
  sudo mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049 127.0.0.1:/ /mnt/agent

`serve` prints the mount commands for Linux, macOS and Docker.";

/// Gives an agent a directory that it can do anything to, and leaves the real one untouched.
#[derive(Debug, Parser)]
#[command(name = "acetate", version, after_help = EXAMPLE, disable_help_subcommand = true)]
struct Cli {
    /// What to log to stderr: error, warn, info, debug, trace, or a tracing filter.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    #[arg(value_parser = parse_filter)]
    log: String,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Init(init::Args),
    Compact(compact::Args),
}

/// Runs the program with the arguments of the process.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too; whoever closed the pipe wants no more of it.
            let _printed = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    start_logging(&cli.log);
    let done = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Compact(args) => compact::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn parse_filter(text: &str) -> Result<String, String> {
    match text.parse::<EnvFilter>() {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("expected error, warn, info, debug, trace, or a tracing filter".to_owned()),
    }
}

fn start_logging(filter: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A log that nobody takes, or whose disk is full, must not end what is being served:
        // these would be reported by a print that panics.
        .log_internal_errors(false)
        .init();
}
