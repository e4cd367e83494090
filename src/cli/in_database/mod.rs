//! Sessions in a database as operands of commands. Before the command runs, each URL is replaced by
//! the path of a replica on this machine, so that commands know only files.
//!
//! A command that changes a session does so through the server of this machine that has it. If no
//! server has it, this process takes the lease for the time of the command.

mod holder;
mod to_mount;

use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use tokio::runtime::{self, Runtime};

use super::error::CliError;
use super::session_names;
use crate::control::entries;
use crate::delta::postgres::{HoldError, SessionError, SessionRow, SessionUrl, without_password};
use crate::inspect::opened::open_session;
use crate::mounting::note::Note;
use crate::workspace::database::{LookedReplica, look, row_of};
use crate::workspace::replicas::replica_name;
use crate::workspace::{Error as WorkspaceError, layers};

use holder::CommandHolder;
pub(super) use holder::change_at_rest;
pub(super) use to_mount::{IfMissing, ReplicaOptions, SessionToMount};

/// The shortest and the longest term of a lease, in seconds.
pub(super) const TERM: std::ops::RangeInclusive<u64> = 1..=3600;

/// What a command does with a session in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatabaseUse {
    /// Takes URLs itself.
    Own,
    /// Reads.
    Look,
    /// Changes it.
    Change,
    /// Nothing, with what to do instead.
    No(&'static str),
}

impl DatabaseUse {
    /// That of a command with these arguments.
    fn of(command: &str, args: &ArgMatches) -> Self {
        let is_given = |option: &str| args.value_source(option) == Some(ValueSource::CommandLine);
        match command {
            // The agent's tables are in the database alone.
            "kv" => Self::Own,
            "tool" => Self::of_tool(args),
            // Only a session that no server has can hide more.
            "hide" if ["hide", "hide_secrets", "remove"].into_iter().any(is_given) => Self::Own,
            "serve" | "mount" | "run" | "init" | "sessions" | "push" | "pull" | "snapshot"
            | "exports" => Self::Own,
            "diff" | "log" | "ls" | "tree" | "cat" | "stat" | "find" | "du" | "export"
            | "status" | "check" | "hide" => Self::Look,
            "apply" | "discard" | "write" | "cp" | "mv" | "ln" | "mkdir" | "touch" | "chmod"
            | "rm" | "rmdir" | "checkpoint" | "restore" | "undo" | "quota" | "fork" | "merge"
            | "ctx" | "mcp" => Self::Change,
            "compact" => Self::No("the database takes back the space of deleted rows by itself"),
            "migrate" => Self::No("`acetate pull` it, migrate the file, and `acetate push` that"),
            "seal" => Self::No("`acetate snapshot` it into a file, and seal that"),
            _ => Self::No("`acetate pull` it into a file, and `acetate push` that afterwards"),
        }
    }
}

impl DatabaseUse {
    /// That of `tool`.
    fn of_tool(args: &ArgMatches) -> Self {
        match args.subcommand() {
            Some(("run", args)) if !args.get_flag("no_checkpoint") => Self::Change,
            Some(("ls", args)) if args.get_flag("changes") => Self::Look,
            Some(("show", _)) => Self::Look,
            _ => Self::Own,
        }
    }
}

/// The sessions in databases that a command uses, until it has ended.
#[derive(Default)]
pub(super) struct Replicas {
    runtime: Option<Runtime>,
    looked: Vec<LookedReplica>,
    held: Vec<CommandHolder>,
}

impl Replicas {
    /// The arguments with paths in the place of URLs; `None` if there are no URLs to replace.
    ///
    /// # Errors
    /// A session cannot be used, or the command does not take URLs.
    pub(super) fn replace(
        &mut self,
        given: &[OsString],
        matches: &ArgMatches,
    ) -> Result<Option<Vec<OsString>>, CliError> {
        let urls = urls_in(matches);
        let Some((command, args)) = matches.subcommand().filter(|_| !urls.is_empty()) else {
            return Ok(None);
        };
        let (is_look, is_change) = match DatabaseUse::of(command, args) {
            DatabaseUse::Own => return Ok(None),
            DatabaseUse::Look => (true, false),
            DatabaseUse::Change => (false, true),
            DatabaseUse::No(instead) => {
                let what = format!("`acetate {command}` does not take a session in a database");
                return Err(CliError::new(what).with_hint(instead));
            }
        };
        let mut replaced = given.to_vec();
        for (text, is_fork) in urls {
            let url: SessionUrl = parse(&text)?;
            let path = self.path_of(&url, is_change && !is_look && !is_fork)?;
            session_names::show_as(path.as_ref(), &text);
            for each in replaced.iter_mut().filter(|each| **each == *text) {
                each.clone_from(&path);
            }
        }
        Ok(Some(replaced))
    }

    fn path_of(&mut self, url: &SessionUrl, changes: bool) -> Result<OsString, CliError> {
        let runtime = match &mut self.runtime {
            Some(runtime) => runtime,
            none => none.insert(start()?),
        };
        let row = row_of(url, runtime.handle())?;
        if let Some(path) = served_here(url, &row) {
            return Ok(path);
        }
        if !changes {
            let looked = look(url, &row, None, runtime.handle())?;
            let path = looked.path.clone().into_os_string();
            self.looked.push(looked);
            return Ok(path);
        }
        let held = CommandHolder::take(url, runtime)?;
        let path = held.path().to_owned().into_os_string();
        self.held.push(held);
        Ok(path)
    }

    /// Gives everything back; returns the error of a session that was not closed.
    pub(super) fn end(self) -> Result<(), CliError> {
        let Some(runtime) = self.runtime else { return Ok(()) };
        let ended = self.held.into_iter().map(|held| held.end(&runtime));
        let ended: Vec<_> = ended.collect();
        runtime.shutdown_background();
        ended.into_iter().collect()
    }
}

/// From here on, the sessions in databases that are mounted on this machine are shown by their
/// names.
pub(super) fn name_mounted() {
    for session in Note::all().into_iter().map(|note| note.session) {
        let opened = open_session(&session).ok();
        if let Some(url) = opened.as_ref().and_then(|opened| opened.replica_of()) {
            session_names::show_as(&session, url);
        }
    }
}

/// The session in a database that an operand names; `None` for a file.
///
/// # Errors
/// It is meant as a URL, and is none.
pub(super) fn url_of(operand: &Path) -> Result<Option<SessionUrl>, CliError> {
    let text = operand.to_str().filter(|text| SessionUrl::is_meant(text));
    text.map(parse).transpose()
}

/// A session's name, checked.
///
/// # Errors
/// It is none, with an example.
pub(super) fn parse(text: &str) -> Result<SessionUrl, CliError> {
    text.parse().map_err(|error| {
        let error = CliError::new(format!("{}: {error}", without_password(text)));
        error.with_hint("a session is named as postgres://USER@HOST/DATABASE/NAME?schema=S")
    })
}

/// A runtime for connections to the database, and for a session that is held.
pub(super) fn start() -> Result<Runtime, CliError> {
    runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(layers::network_threads())
        .thread_name("acetate-net")
        .build()
        .map_err(|error| CliError::caused("cannot start threads", &error))
}

/// Whether the database has a session of this name.
///
/// # Errors
/// It does not answer, or refuses.
pub(super) fn is_there(url: &SessionUrl) -> Result<bool, CliError> {
    let runtime = start()?;
    match row_of(url, runtime.handle()) {
        Err(error) if is_missing(&error) => Ok(false),
        // The name of one that was moved away is free.
        Err(error) if is_moved(&error) => Ok(false),
        row => Ok(row.map(|_| true)?),
    }
}

fn is_moved(error: &WorkspaceError) -> bool {
    matches!(error, WorkspaceError::Database { source, .. }
        if matches!(**source, HoldError::Session(SessionError::Moved(_))))
}

/// Whether the database has no session of this name.
fn is_missing(error: &WorkspaceError) -> bool {
    matches!(error, WorkspaceError::Database { source, .. }
        if matches!(**source, HoldError::Session(SessionError::Missing(_))))
}

/// The URLs among the sessions of a command, and whether each is one that is only read.
fn urls_in(matches: &ArgMatches) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut of_command = Some((super::command(), matches));
    while let Some((mut command, matches)) = of_command {
        for arg in command.get_arguments() {
            let name = arg.get_value_names().and_then(|names| names.first());
            // One that is to be made is the command's own.
            let name = name.filter(|name| name.ends_with(".db") && name.as_str() != "NEW.db");
            let Some(name) = name else { continue };
            let values = matches.try_get_raw(arg.get_id().as_str()).ok().flatten();
            for text in values.into_iter().flatten().filter_map(|value| value.to_str()) {
                if SessionUrl::is_meant(text) {
                    found.push((text.to_owned(), name.as_str() == "FORK.db"));
                }
            }
        }
        of_command = matches.subcommand().and_then(|(name, matches)| {
            command.find_subcommand_mut(name).map(|inner| (inner.clone(), matches))
        });
    }
    found
}

/// The replica of a session that a server of this user serves on this machine.
fn served_here(url: &SessionUrl, row: &SessionRow) -> Option<OsString> {
    let name = replica_name(url, row);
    let of_session = |path: &std::path::Path| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&name))
    };
    let registered = entries().unwrap_or_default().into_iter().map(|entry| entry.session);
    // After sudo, the server of a mount is in the registry of another user.
    let mounted = Note::all().into_iter().map(|note| note.session);
    let mut served = registered.chain(mounted).filter(|path| of_session(path));
    let answers = |path: &std::path::PathBuf| {
        super::change::connect(path).is_ok_and(|connection| connection.is_some())
    };
    served.find(answers).map(std::path::PathBuf::into_os_string)
}
