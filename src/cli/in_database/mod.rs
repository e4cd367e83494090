//! Sessions in a database as operands of commands. Before the command runs, each URL is replaced by
//! the path of a replica on this machine, so that commands know only files.
//!
//! A command that changes a session does so through the server of this machine that has it. If no
//! server has it, this process takes the lease for the time of the command.

mod holder;

use std::ffi::OsString;

use clap::ArgMatches;
use tokio::runtime::{self, Runtime};

use super::error::CliError;
use crate::control::entries;
use crate::delta::postgres::{SessionRow, SessionUrl};
use crate::workspace::database::{LookedReplica, look, replica_name, row_of};
use crate::workspace::layers;

use holder::CommandHolder;

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
    /// That of a command.
    fn of(command: &str) -> Self {
        match command {
            "serve" | "init" | "sessions" | "push" | "pull" | "snapshot" | "exports" => Self::Own,
            "diff" | "log" | "ls" | "tree" | "cat" | "stat" | "find" | "du" | "export"
            | "status" | "check" => Self::Look,
            "apply" | "discard" | "write" | "cp" | "mv" | "ln" | "mkdir" | "touch" | "chmod"
            | "rm" | "rmdir" | "checkpoint" | "restore" | "undo" | "quota" | "merge" | "ctx"
            | "mcp" => Self::Change,
            "compact" => Self::No("the database takes back the space of deleted rows by itself"),
            "migrate" => Self::No("`acetate pull` it, migrate the file, and `acetate push` that"),
            "mount" | "run" => {
                Self::No("serve it with `acetate serve URL`, and mount that as the server says")
            }
            _ => Self::No("`acetate pull` it into a file, and `acetate push` that afterwards"),
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
        let Some((command, _)) = matches.subcommand().filter(|_| !urls.is_empty()) else {
            return Ok(None);
        };
        let (is_look, is_change) = match DatabaseUse::of(command) {
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
        if let Some(path) = served_here(&row) {
            return Ok(path);
        }
        if !changes {
            let looked = look(url, &row, runtime.handle())?;
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

/// A session's name, checked.
///
/// # Errors
/// It is none, with an example.
pub(super) fn parse(text: &str) -> Result<SessionUrl, CliError> {
    text.parse().map_err(|error| {
        let error = CliError::new(format!("{text}: {error}"));
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

/// The URLs among the sessions of a command, and whether each is one that is only read.
fn urls_in(matches: &ArgMatches) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut of_command = Some((super::command(), matches));
    while let Some((mut command, matches)) = of_command {
        for arg in command.get_arguments() {
            let name = arg.get_value_names().and_then(|names| names.first());
            let Some(name) = name.filter(|name| name.ends_with(".db")) else { continue };
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
fn served_here(row: &SessionRow) -> Option<OsString> {
    let name = replica_name(row);
    let of_session = |path: &std::path::Path| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&name))
    };
    let served = entries().ok()?.into_iter().map(|entry| entry.session);
    let mut served = served.filter(|path| of_session(path));
    let answers = |path: &std::path::PathBuf| {
        super::change::connect(path).is_ok_and(|connection| connection.is_some())
    };
    served.find(answers).map(std::path::PathBuf::into_os_string)
}
