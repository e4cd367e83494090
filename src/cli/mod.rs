//! The command line: parses, runs, prints, exits.
//!
//! The only module that prints, and the only one that uses clap. Data goes to stdout, everything
//! else to stderr. Exit codes: 0 success, 1 findings (or no result of a search), 2 failure.
//!
//! Each subcommand has a file; `error` formats failures, `text` and `object` format data.

mod agent_values;
mod applied_since;
mod apply;
mod asking;
mod cat;
mod change;
mod check;
mod checkpoint;
mod child;
mod chmod;
mod choosing;
mod compact;
mod completing;
mod completions;
mod config;
mod confinement;
mod control;
mod copying;
mod cp;
mod ctx;
mod detached;
mod diff;
mod discard;
mod du;
mod error;
mod export;
mod export_set;
mod exports;
mod exposure;
mod find;
mod fork;
mod help;
mod hide;
mod hiding;
mod hints;
mod in_database;
mod init;
mod instead;
mod kv;
mod links;
mod listen;
mod ln;
mod log;
mod log_json;
mod logging;
mod lost_dirs;
mod ls;
mod man;
mod mcp;
mod merge;
mod migrate;
mod mkdir;
mod mount;
mod mount_advice;
mod mount_events;
mod mount_help;
#[cfg(target_os = "linux")]
mod mount_sync_child;
mod mv;
#[cfg(target_os = "linux")]
mod namespace_child;
mod object;
mod operands;
mod output;
mod pager;
mod partial;
mod picking;
mod push;
mod quota;
mod repair;
mod restore;
mod rm;
mod rmdir;
mod run;
#[cfg(target_os = "linux")]
mod sandbox_child;
mod seal;
mod selecting;
mod serve;
mod session_names;
mod sessions;
mod shell_words;
mod signals;
mod similar;
mod snapshot;
mod source;
mod squash;
mod stat;
mod status;
mod steps_back;
mod text;
mod time_args;
mod tool;
mod touch;
mod tree;
mod tree_paths;
mod umount;
mod validator_child;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::filter::EnvFilter;

use error::{CliError, CliErrorKind};
use in_database::Replicas;

/// Gives an agent a directory that it can do anything to, and leaves the real one untouched.
#[derive(Debug, Parser)]
#[command(name = "acetate", version, after_help = help::EXAMPLE, disable_help_subcommand = true)]
struct Cli {
    /// What to log: error, warn, info, debug, trace, or a filter [default: warn].
    ///
    /// By default, commands that do not serve leave out warnings about the time that an operation
    /// takes.
    #[arg(long, global = true, value_name = "LEVEL", value_parser = parse_filter)]
    log: Option<String>,

    /// The format of lines on stderr; `json` is an object in each line.
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text")]
    #[arg(hide_short_help = true)]
    log_format: logging::LogFormat,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Serve(serve::Args),
    Init(init::Args),
    Hide(hide::Args),
    Status(status::Args),
    Diff(diff::Args),
    Apply(apply::Args),
    Log(log::Args),
    Ls(ls::Args),
    Tree(tree::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Find(find::Args),
    Du(du::Args),
    Write(write::Args),
    Cp(cp::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Mkdir(mkdir::Args),
    Touch(touch::Args),
    Chmod(chmod::Args),
    Rm(rm::Args),
    Rmdir(rmdir::Args),
    Discard(discard::Args),
    Checkpoint(checkpoint::Args),
    Fork(fork::Args),
    Merge(merge::Args),
    Restore(restore::Args),
    Undo(restore::UndoArgs),
    Quota(quota::Args),
    Sessions(sessions::Args),
    Config(config::Args),
    Exports(exports::Args),
    Kv(kv::Args),
    Tool(tool::Args),
    Mcp(mcp::Args),
    Ctx(ctx::Args),
    Check(check::Args),
    Migrate(migrate::Args),
    Snapshot(snapshot::Args),
    Push(push::Args),
    Pull(push::PullArgs),
    Compact(compact::Args),
    Export(export::Args),
    Seal(seal::Args),
    Completions(completions::Args),
    Man(man::Args),
    Help(help::Args),
    #[command(hide = true)]
    ValidatorChild(validator_child::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    MountSyncChild(mount_sync_child::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    NamespaceChild(namespace_child::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    SandboxChild(sandbox_child::Args),
}

/// The result of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The command succeeded.
    Done,
    /// The command found differences or problems, or its search found nothing.
    Findings,
    /// The command that was run ended with this exit code.
    Exit(u8),
}

/// The exit code of [`Ending::Findings`].
const FINDINGS: u8 = 1;

/// The exit code of a failure or of invalid usage.
const FAILED: u8 = 2;

/// The exit code after a session in a database was lost to another server: "temporary failure"
/// (sysexits.h), after which a service manager starts a server again.
const LOST: i32 = 75;

/// The program's commands and options.
pub fn command() -> clap::Command {
    help::grouped(Cli::command())
}

/// Runs the program with the arguments of the process.
pub fn run() -> ExitCode {
    if completing::answer() {
        return ExitCode::SUCCESS;
    }
    let given: Vec<_> = std::env::args_os().collect();
    let (matches, cli) = match parse(&given) {
        Ok(parsed) => parsed,
        Err(mut error) => {
            if let Some(unknown) = help::unknown_command(&error, &given) {
                output::error(&unknown);
                return ExitCode::from(FAILED);
            }
            print_usage(&mut error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILED));
        }
    };
    logging::start(cli.log.as_deref().unwrap_or(cli.command.default_log()), cli.log_format);
    match run_over_replicas(cli.command, &given, &matches) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Findings) => ExitCode::from(FINDINGS),
        Ok(Ending::Exit(code)) => ExitCode::from(code),
        Err(error) if error.kind() == CliErrorKind::Closed => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// Parses arguments; where they are wrong, also with what clap does not know replaced.
fn parse(args: &[OsString]) -> Result<(ArgMatches, Cli), clap::Error> {
    let parse = |args: &[OsString]| {
        let matches = command().try_get_matches_from(args)?;
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((matches, cli))
    };
    parse(args).or_else(|error| {
        let as_clap: Vec<_> =
            diff::with_equals_sign(apply::with_take_apart(args.iter().cloned()).into_iter());
        if as_clap == args { Err(error) } else { parse(&as_clap) }
    })
}

/// Runs a command, on replicas of the sessions in databases that it names.
fn run_over_replicas(
    command: Command,
    given: &[OsString],
    matches: &ArgMatches,
) -> Result<Ending, CliError> {
    let mut replicas = Replicas::default();
    let replaced = replicas.replace(given, matches);
    let command = match replaced {
        Ok(None) => return command.run(),
        Ok(Some(args)) => parse(&args).map(|(_, cli)| cli.command).map_err(CliError::new),
        Err(error) => Err(error),
    };
    let ended = command.and_then(Command::run);
    replicas.end().and(ended)
}

/// Prints help, or a usage error without control characters that the arguments may contain.
fn print_usage(error: &mut clap::Error) {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        // A closed pipe is not an error.
        let _printed = error.print();
        return;
    }
    // Escapes the arguments: clap would drop what looks like an escape sequence.
    let printable = |text: &String| text::printable(text).into_owned();
    let given = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(printable(text)))),
        ContextValue::Strings(texts) => {
            Some((kind, ContextValue::Strings(texts.iter().map(printable).collect())))
        }
        _ => None,
    });
    for (kind, value) in given.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
    for line in error.render().to_string().lines() {
        output::line(format_args!("{line}"));
    }
}

impl Command {
    /// The filter of the log without `--log`.
    fn default_log(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::Mount(_) | Self::Serve(_) => logging::OF_SERVERS,
            Self::Mcp(_) => logging::OF_MCP,
            _ => logging::OF_COMMANDS,
        }
    }

    fn run(self) -> Result<Ending, CliError> {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Mount(args) => mount::run(&args),
            Self::Umount(args) => umount::run(&args),
            Self::Serve(args) => serve::run(&args),
            Self::Init(args) => init::run(&args),
            Self::Hide(args) => hide::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Apply(args) => apply::run(&args),
            Self::Log(args) => log::run(&args),
            Self::Ls(args) => ls::run(&args),
            Self::Tree(args) => tree::run(&args),
            Self::Cat(args) => cat::run(&args),
            Self::Stat(args) => stat::run(&args),
            Self::Find(args) => find::run(&args),
            Self::Du(args) => du::run(&args),
            Self::Write(args) => write::run(&args),
            Self::Cp(args) => cp::run(&args),
            Self::Mv(args) => mv::run(&args),
            Self::Ln(args) => ln::run(&args),
            Self::Mkdir(args) => mkdir::run(&args),
            Self::Touch(args) => touch::run(&args),
            Self::Chmod(args) => chmod::run(&args),
            Self::Rm(args) => rm::run(&args),
            Self::Rmdir(args) => rmdir::run(&args),
            Self::Discard(args) => discard::run(&args),
            Self::Restore(args) => restore::run(&args),
            Self::Undo(args) => restore::undo(&args),
            Self::Checkpoint(args) => checkpoint::run(&args),
            Self::Fork(args) => fork::run(&args),
            Self::Merge(args) => merge::run(&args),
            Self::Quota(args) => quota::run(&args),
            Self::Sessions(args) => sessions::run(&args),
            Self::Config(args) => config::run(&args),
            Self::Exports(args) => exports::run(&args),
            Self::Kv(args) => kv::run(&args),
            Self::Tool(args) => tool::run(&args),
            Self::Mcp(args) => mcp::run(&args),
            Self::Ctx(args) => ctx::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Migrate(args) => migrate::run(&args),
            Self::Snapshot(args) => snapshot::run(&args),
            Self::Push(args) => push::run(&args),
            Self::Pull(args) => push::pull(&args),
            Self::Compact(args) => compact::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Seal(args) => seal::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
            Self::Help(args) => help::run(&args),
            Self::ValidatorChild(args) => validator_child::run(&args),
            #[cfg(target_os = "linux")]
            Self::MountSyncChild(args) => mount_sync_child::run(&args),
            #[cfg(target_os = "linux")]
            Self::NamespaceChild(args) => namespace_child::run(&args),
            #[cfg(target_os = "linux")]
            Self::SandboxChild(args) => sandbox_child::run(&args),
        }
    }
}

fn parse_filter(text: &str) -> Result<String, String> {
    match text.parse::<EnvFilter>() {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("expected error, warn, info, debug, trace, or a tracing filter".to_owned()),
    }
}
